-- name: forget_keys(before)!
-- Idempotency keys are remembered for a while.
delete from idempotency_keys where created_at <= :before;

-- name: reserve_key(tenant, principal, key, digest, route, at)^
-- Whose key it is: the row that is made now, or the one that came before.
with reserved as (
  insert into idempotency_keys (tenant, principal, key, digest, route, created_at)
  values (:tenant::text, :principal::text, :key::text, :digest::text, :route::text, :at::timestamptz)
  on conflict do nothing
  returning digest, created_at, answer
)
select digest, created_at, answer::text as answer from reserved
union all
select digest, created_at, answer::text from idempotency_keys
where tenant = :tenant::text and principal = :principal::text and key = :key::text and not exists (select from reserved);

-- name: keep_answer(tenant, principal, key, at, status, answer, session_uid)!
-- What was answered under a key. With a session it is kept only for as long as the session.
update idempotency_keys k set status = :status, answer = :answer::json, session_uid = :session_uid::uuid
where k.tenant = :tenant and k.principal = :principal and k.key = :key and k.created_at = :at
  and (:session_uid::uuid is null or exists (select from sessions s where s.session_uid = :session_uid::uuid));

-- name: release_key(tenant, principal, key, at)!
-- Nothing happened under a key: it is as unused as before.
delete from idempotency_keys
where tenant = :tenant and principal = :principal and key = :key and created_at = :at and answer is null;
