-- Their expressions are locked, unless somebody is making or cancelling a preview of them.
SELECT v.id, v.expression_id
FROM expression e
JOIN preview v ON v.expression_id = e.id
WHERE v.expires_at <= now()
ORDER BY e.id
FOR NO KEY UPDATE OF e SKIP LOCKED
