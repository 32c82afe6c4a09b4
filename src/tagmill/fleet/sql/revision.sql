-- The incarnation (null: not noted yet) and the partition's rev (null: no such partition), in one look.
SELECT (SELECT uuid::text FROM current_incarnation), (SELECT rev FROM partition WHERE id = %(partition)s)
