-- name: note_audit(id, session_uid, target, tenant, principal, action, facts, at)!
-- Who did what. Twice is once: the id is derived from the act.
insert into audit (id, session_uid, target, tenant, principal, action, facts, at)
values (:id, :session_uid, :target, :tenant, :principal, :action, :facts, :at)
on conflict do nothing;
