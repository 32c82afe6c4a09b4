import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

# A role in a cluster is a change of its user. Relies on: as `audit_record`.
RECORD = """
CREATE FUNCTION audit_cluster_role() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before text;
    after text;
    subject_id bigint;
    place bigint;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        before := OLD.role;
        subject_id := OLD.user_id;
        place := OLD.cluster_id;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        after := NEW.role;
        subject_id := NEW.user_id;
        place := NEW.cluster_id;
    END IF;
    IF before = after THEN RETURN NULL; END IF;
    INSERT INTO audit_event (at, actor, via, request_id, kind, object_id, name, action, changes)
    VALUES (
        now(),
        coalesce(current_setting('tagmill.actor', true), ''),
        coalesce(nullif(current_setting('tagmill.via', true), ''), 'system'),
        coalesce(current_setting('tagmill.request_id', true), ''),
        'user', subject_id,
        coalesce((SELECT username FROM auth_user WHERE id = subject_id), ''), 'changed',
        jsonb_build_object(
            'role', jsonb_build_array(before, after),
            'cluster', jsonb_build_array(NULL, (SELECT name FROM cluster WHERE id = place))
        )
    );
    RETURN NULL;
END
$$
"""


class Migration(migrations.Migration):
    dependencies = [
        ("api", "0009_oidcidentity"),
        ("audit", "0003_trail"),
        ("fleet", "0010_pastpartition"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="ClusterRole",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("role", models.CharField(max_length=64)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="fleet.cluster",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="cluster_roles",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "user_cluster_role",
                "ordering": ["id"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "cluster"), name="user_cluster_role_one"
                    )
                ],
            },
        ),
        migrations.RunSQL(RECORD, "DROP FUNCTION audit_cluster_role"),
        migrations.RunSQL(
            "CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON user_cluster_role "
            "FOR EACH ROW EXECUTE FUNCTION audit_cluster_role()",
            "DROP TRIGGER audit ON user_cluster_role",
        ),
    ]
