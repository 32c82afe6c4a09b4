"""Tokens issued before their role was stored: django-rest-knox kept them. Each goes on working, with
the role that its user has, and expires like a new one where it had no end."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import migrations

from tagmill.config import load

TABLE = "knox_authtoken"
COPY = """
INSERT INTO user_token (digest, key, user_id, role, is_login, created_at, expires_at)
SELECT decode(k.digest, 'hex'), k.token_key, k.user_id,
    CASE WHEN u.is_superuser OR 'admin' = ANY(r.names) THEN 'admin'
         WHEN 'operator' = ANY(r.names) THEN 'operator'
         WHEN 'viewer' = ANY(r.names) THEN 'viewer'
         ELSE 'none' END,
    false, k.created, coalesce(k.expiry, now() + nullif(%s::float, 0) * interval '1 day')
FROM knox_authtoken k
JOIN auth_user u ON u.id = k.user_id
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(g.name::text), '{}') AS names
    FROM auth_user_groups m JOIN auth_group g ON g.id = m.group_id WHERE m.user_id = u.id
) r
ORDER BY k.created
"""


def copy(apps: Any, schema_editor: Any) -> None:
    connection = schema_editor.connection
    with connection.cursor() as cursor:
        if TABLE not in connection.introspection.table_names(cursor):
            return
        cursor.execute(COPY, [load().token_days])
        cursor.execute(f"DROP TABLE {TABLE}")
    # The permissions of the model go with it.
    apps.get_model("contenttypes", "ContentType").objects.filter(app_label="knox").delete()


class Migration(migrations.Migration):
    dependencies = [
        ("api", "0001_user_tokens"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("auth", "0012_alter_user_first_name_max_length"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [migrations.RunPython(copy, migrations.RunPython.noop)]
