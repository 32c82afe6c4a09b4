-- Those whose previews change, and the one with this digest, always in the same order.
SELECT id
FROM expression
WHERE id = ANY(%(expressions)s) OR digest = %(digest)s
ORDER BY id
FOR NO KEY UPDATE
