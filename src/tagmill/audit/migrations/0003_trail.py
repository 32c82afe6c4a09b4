from django.db import migrations

FORWARD = """
ALTER TABLE audit_event ADD COLUMN txid xid8, ADD COLUMN seq bigint;
ALTER TABLE audit_event ALTER COLUMN txid SET DEFAULT pg_current_xact_id(),
    ALTER COLUMN seq SET DEFAULT nextval('trail_seq');
CREATE INDEX audit_event_txid ON audit_event (txid) WHERE txid IS NOT NULL;
"""
BACKWARD = "ALTER TABLE audit_event DROP COLUMN txid, DROP COLUMN seq"


class Migration(migrations.Migration):
    # The sequence is made there.
    dependencies = [("audit", "0002_triggers"), ("matches", "0007_trail")]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
