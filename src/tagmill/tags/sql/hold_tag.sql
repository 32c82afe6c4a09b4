SELECT id FROM tag WHERE name = %(name)s FOR KEY SHARE
