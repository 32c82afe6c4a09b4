import uuid

from django.db import migrations, models
from django.db.models.functions import Now

# What tells one physical history of this database from another, as one text:
# - the cluster of databases (initdb, pg_upgrade), and its timeline: promotion of a replica and recovery to a
#   point in time begin a new one. The name of the WAL file that is written now has it; the control file
#   has it only after the next checkpoint.
# - the database and the table of partitions, with the file that it is stored in: a dump that is restored
#   into either makes new ones, and so does TRUNCATE.
# - when PostgreSQL started: nobody can exchange its files while it runs.
# Each of them may change where nothing was lost (a restart, VACUUM FULL). That costs workers a fetch.
# `to_regclass` looks the table up each time; a constant would be kept with a plan.
FORWARD = """
CREATE VIEW database_history AS
SELECT concat_ws('/',
           (SELECT system_identifier FROM pg_control_system()),
           left(pg_walfile_name(pg_current_wal_lsn()), 8),
           (SELECT oid FROM pg_database WHERE datname = current_database()),
           to_regclass('partition')::oid,
           pg_relation_filenode(to_regclass('partition')),
           extract(epoch FROM pg_postmaster_start_time())
       ) AS name;

CREATE VIEW current_incarnation AS
SELECT incarnation.uuid
FROM incarnation
CROSS JOIN database_history
WHERE incarnation.history = database_history.name;
"""
BACKWARD = "DROP VIEW current_incarnation; DROP VIEW database_history"


class Migration(migrations.Migration):
    dependencies = [("fleet", "0004_node_tombstone_rev")]

    operations = [
        migrations.CreateModel(
            name="Incarnation",
            fields=[
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("uuid", models.UUIDField(default=uuid.uuid4, editable=False)),
                ("history", models.TextField(editable=False)),
                ("since", models.DateTimeField(db_default=Now(), editable=False)),
            ],
            options={
                "db_table": "incarnation",
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("id", 1)), name="incarnation_is_one")
                ],
            },
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
