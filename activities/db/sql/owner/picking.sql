-- name: picked_sessions(tenant, session_ids)
-- Sessions of a tenant (null: of all), the oldest first; with ids, those.
select session_uid, tenant, session_id from actual_sessions
where (:tenant::text is null or tenant = :tenant::text) and (:session_ids::text[] is null or session_id = any (:session_ids::text[]))
order by created_at, session_uid;
