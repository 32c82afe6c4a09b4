from django.db import migrations

# One row for each live node and each tag it carries. A bitmap's CASE guards get_bit, which raises
# beyond the end of its argument; AND would not promise to test the length first.
CREATE = """
CREATE VIEW node_tag AS
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
   AND tag.expression_id IS NULL AND tag.pending_expression_id IS NULL
  JOIN node ON node.partition_id = assignment.partition_id
   AND node.deleted_at IS NULL
   AND CASE WHEN node.slot < 8 * octet_length(assignment.members)
            THEN get_bit(assignment.members, node.slot) = 1
            ELSE false END
"""


class Migration(migrations.Migration):
    dependencies = [("tags", "0001_initial"), ("fleet", "0002_document_compression")]

    operations = [migrations.RunSQL(CREATE, "DROP VIEW node_tag")]
