-- name: tokens
-- Users' tokens that are good now, by their digests: columns of the token and of its user, the names of the
-- user's roles, and whether it is to be recorded that the token is used. One look by the unique index, however
-- many tokens there are. Run with `sql.bound`.
-- Relies on: nothing; who loses a role while a request runs has it until the end of that request.
SELECT t.id, t.digest, t.key, t.user_id, t.role, t.is_login,
       u.id, u.is_superuser, u.username, u.is_staff, u.is_active,
       array(
           SELECT g.name::text
           FROM auth_user_groups member
           JOIN auth_group g ON g.id = member.group_id
           WHERE member.user_id = u.id AND g.name = ANY(%(groups)s::text[])
       ),
       t.last_used_at IS NULL OR t.last_used_at < now() - make_interval(secs => %(recorded_every)s::float)
FROM user_token t
JOIN auth_user u ON u.id = t.user_id
WHERE t.digest = ANY(%(digests)s::bytea[])
  AND u.is_active
  AND (t.expires_at IS NULL OR t.expires_at > now())
