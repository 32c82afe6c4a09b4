from django.db import migrations, models

# Whether a tag ever named an expression was not kept: what the audit trail mentions counts as named.
NAMED = """
UPDATE expression e SET named_at = created_at
WHERE EXISTS (SELECT FROM match_change c WHERE c.expression_id = e.id)
   OR EXISTS (SELECT FROM tag t WHERE e.id IN (t.expression_id, t.pending_expression_id))
"""


class Migration(migrations.Migration):
    dependencies = [("tags", "0005_expression_attempted_at")]

    operations = [
        migrations.AddField(
            model_name="expression",
            name="named_at",
            field=models.DateTimeField(
                help_text="when a tag named it first; null: previews only", null=True
            ),
        ),
        migrations.RunSQL(NAMED, migrations.RunSQL.noop),
    ]
