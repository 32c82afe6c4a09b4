from django.db import migrations

# lz4 unpacks several times faster than pglz, but a server may be built without it (the embedded one
# is): then the column keeps the server's default.
COMPRESS = """
DO $$
BEGIN
    ALTER TABLE document ALTER COLUMN xml SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    RAISE NOTICE 'this PostgreSQL has no lz4: documents are compressed with pglz';
END
$$
"""


class Migration(migrations.Migration):
    dependencies = [("fleet", "0001_initial")]

    operations = [
        migrations.RunSQL(COMPRESS, "ALTER TABLE document ALTER COLUMN xml SET COMPRESSION DEFAULT")
    ]
