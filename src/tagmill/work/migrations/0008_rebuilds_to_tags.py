from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("contenttypes", "0002_remove_content_type_name"),
        ("work", "0007_worker_host_token_name"),
    ]

    # The models go to `tags`; their tables stay as they are.
    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RemoveField(
                    model_name="rebuildtarget",
                    name="rebuild",
                ),
                migrations.RemoveField(
                    model_name="rebuildtarget",
                    name="expression",
                ),
                migrations.RemoveField(
                    model_name="rebuildtarget",
                    name="partition",
                ),
                migrations.DeleteModel(
                    name="Rebuild",
                ),
                migrations.DeleteModel(
                    name="RebuildTarget",
                ),
            ],
        ),
        # What refers to the models by their content type (permissions, the admin's log) follows them.
        migrations.RunSQL(
            "UPDATE django_content_type SET app_label = 'work' "
            "WHERE app_label = 'rebuilds' AND model IN ('worker', 'workertoken', 'lease')",
            migrations.RunSQL.noop,
        ),
        # What refers to the models by their content type (permissions, the admin's log) follows them.
        migrations.RunSQL(
            "UPDATE django_content_type SET app_label = 'tags' "
            "WHERE app_label = 'rebuilds' AND model IN ('rebuild', 'rebuildtarget')",
            migrations.RunSQL.noop,
        ),
    ]
