from django.db import migrations

# What a tag says, in place of the ids of its expressions, which are collected some day.
TAG = """
CREATE FUNCTION audit_tag(said jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT said - 'expression_id' - 'pending_expression_id' || jsonb_build_object(
        'definition', published.text,
        'namespaces', published.namespaces,
        'pending_definition', pending.text,
        'pending_namespaces', pending.namespaces
    )
    FROM (SELECT) one
    LEFT JOIN expression published ON published.id = (said ->> 'expression_id')::bigint
    LEFT JOIN expression pending ON pending.id = (said ->> 'pending_expression_id')::bigint
$$
"""
# One event for each row that is inserted, deleted, or really changed. The tables of relations record a
# change of what they belong to. Relies on: `tagmill.actor` and its siblings are set by
# tagmill.audit.acting, or not at all.
RECORD = """
CREATE FUNCTION audit_record() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before jsonb;
    after jsonb;
    subject jsonb;
    about text := TG_ARGV[0];
    subject_id bigint;
    subject_name text;
    done text := CASE TG_OP WHEN 'INSERT' THEN 'created' WHEN 'UPDATE' THEN 'changed' ELSE 'deleted' END;
    found jsonb;
BEGIN
    IF TG_OP <> 'INSERT' THEN before := to_jsonb(OLD); END IF;
    IF TG_OP <> 'DELETE' THEN after := to_jsonb(NEW); END IF;
    subject := coalesce(before, after);
    subject_id := (subject ->> 'id')::bigint;
    CASE TG_TABLE_NAME
        WHEN 'tag' THEN
            subject_name := subject ->> 'name';
            before := audit_tag(before);
            after := audit_tag(after);
            IF before -> 'pending_definition' <> 'null' AND TG_OP = 'UPDATE'
                AND (before ->> 'pending_definition', before -> 'pending_namespaces')
                    = (after ->> 'definition', after -> 'namespaces')
                AND after -> 'pending_definition' = 'null' THEN
                done := 'published';
            END IF;
        WHEN 'auth_user' THEN
            subject_name := subject ->> 'username';
        WHEN 'auth_user_groups' THEN
            subject_id := (subject ->> 'user_id')::bigint;
            SELECT username INTO subject_name FROM auth_user WHERE id = subject_id;
            SELECT jsonb_build_object('role', name) INTO found
            FROM auth_group WHERE id = (subject ->> 'group_id')::bigint;
        WHEN 'worker_token_cluster' THEN
            subject_id := (subject ->> 'workertoken_id')::bigint;
            SELECT name INTO subject_name FROM worker_token WHERE id = subject_id;
            SELECT jsonb_build_object('cluster', name) INTO found
            FROM cluster WHERE id = (subject ->> 'cluster_id')::bigint;
        WHEN 'user_token' THEN
            subject_id := (subject ->> 'user_id')::bigint;
            SELECT username INTO subject_name FROM auth_user WHERE id = subject_id;
            before := before - 'digest' - 'user_id' - 'last_used_at';
            after := after - 'digest' - 'user_id' - 'last_used_at';
        ELSE
            subject_name := subject ->> 'name';
    END CASE;
    IF TG_TABLE_NAME IN ('auth_user_groups', 'worker_token_cluster') THEN
        done := 'changed';
        before := CASE WHEN before IS NOT NULL THEN found END;
        after := CASE WHEN after IS NOT NULL THEN found END;
    END IF;
    SELECT jsonb_object_agg(
               key,
               CASE WHEN key IN ('password', 'secret_digest') THEN '["hidden", "hidden"]'::jsonb
                    ELSE jsonb_build_array(o.value, n.value) END
           )
    INTO found
    FROM jsonb_each(coalesce(before, '{}')) o
    FULL JOIN jsonb_each(coalesce(after, '{}')) n USING (key)
    WHERE coalesce(o.value, 'null') <> coalesce(n.value, 'null')
      AND key NOT IN ('id', 'created', 'created_at', 'updated_at', 'last_login', 'date_joined');
    IF found IS NULL AND TG_OP = 'UPDATE' THEN RETURN NULL; END IF;
    INSERT INTO audit_event (at, actor, via, request_id, kind, object_id, name, action, changes)
    VALUES (
        now(),
        coalesce(current_setting('tagmill.actor', true), ''),
        coalesce(nullif(current_setting('tagmill.via', true), ''), 'system'),
        coalesce(current_setting('tagmill.request_id', true), ''),
        about, subject_id, coalesce(subject_name, ''), done, coalesce(found, '{}')
    );
    RETURN NULL;
END
$$
"""
KINDS = {
    "tag": "tag",
    "cluster": "cluster",
    "worker_token": "worker_token",
    "worker_token_cluster": "worker_token",
    "auth_user": "user",
    "auth_user_groups": "user",
}


def trigger(table: str, kind: str) -> migrations.RunSQL:
    return migrations.RunSQL(
        f"CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON {table} "
        f"FOR EACH ROW EXECUTE FUNCTION audit_record('{kind}')",
        f"DROP TRIGGER audit ON {table}",
    )


class Migration(migrations.Migration):
    dependencies = [
        ("audit", "0001_initial"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("fleet", "0001_initial"),
        ("work", "0001_initial"),
        ("tags", "0001_initial"),
    ]

    operations = [
        migrations.RunSQL(TAG, "DROP FUNCTION audit_tag"),
        migrations.RunSQL(RECORD, "DROP FUNCTION audit_record"),
        *(trigger(table, kind) for table, kind in KINDS.items()),
    ]
