-- name: try_locks(keys)
-- Takes what is free of these locks for the session of this connection.
select k.key, pg_try_advisory_lock(hashtextextended(k.key, 0)) as taken from unnest(:keys::text[]) as k (key);

-- name: free_locks(keys)
-- Gives locks back.
select k.key, pg_advisory_unlock(hashtextextended(k.key, 0)) as freed from unnest(:keys::text[]) as k (key);
