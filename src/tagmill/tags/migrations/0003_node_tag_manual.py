from importlib import import_module

from django.db import migrations

# As before, but a manual tag that becomes automatic keeps its nodes until its first definition is
# published.
CREATE = """
CREATE OR REPLACE VIEW node_tag AS
SELECT node.id AS node_id, tag.id AS tag_id
  FROM tag
  JOIN match ON match.expression_id = tag.expression_id
  JOIN node ON node.partition_id = match.partition_id
   AND node.deleted_at IS NULL
   AND CASE WHEN node.slot < 8 * octet_length(match.members)
            THEN get_bit(match.members, node.slot) = 1
            ELSE false END
UNION ALL
SELECT node.id, assignment.tag_id
  FROM assignment
  JOIN tag ON tag.id = assignment.tag_id
   AND tag.expression_id IS NULL
  JOIN node ON node.partition_id = assignment.partition_id
   AND node.deleted_at IS NULL
   AND CASE WHEN node.slot < 8 * octet_length(assignment.members)
            THEN get_bit(assignment.members, node.slot) = 1
            ELSE false END
"""
BEFORE = import_module("tagmill.tags.migrations.0002_node_tag").CREATE


class Migration(migrations.Migration):
    dependencies = [("tags", "0002_node_tag")]

    operations = [
        migrations.RunSQL(CREATE, BEFORE.replace("CREATE VIEW", "CREATE OR REPLACE VIEW"))
    ]
