from django.db import migrations

FORWARD = """
ALTER TABLE assignment_change ADD COLUMN txid xid8, ADD COLUMN seq bigint;
ALTER TABLE assignment_change ALTER COLUMN txid SET DEFAULT pg_current_xact_id(),
    ALTER COLUMN seq SET DEFAULT nextval('trail_seq');
CREATE INDEX assignment_change_txid ON assignment_change (txid) WHERE txid IS NOT NULL;
"""
BACKWARD = "ALTER TABLE assignment_change DROP COLUMN txid, DROP COLUMN seq"


class Migration(migrations.Migration):
    # The sequence is made there.
    dependencies = [("tags", "0009_rooms"), ("matches", "0007_trail")]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
