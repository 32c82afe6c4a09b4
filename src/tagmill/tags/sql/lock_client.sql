-- The previews of one client of a user are made and cancelled one after the other.
SELECT pg_advisory_xact_lock(hashtextextended(%(client)s, %(user)s))
