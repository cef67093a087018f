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

-- name: keep_answer(tenant, principal, key, digest, route, at, status, answer, session_id)!
-- What was answered under a key. With a session it is kept only while the session is there.
insert into idempotency_keys (tenant, principal, key, digest, route, session_uid, status, answer, created_at)
select :tenant::text, :principal::text, :key::text, :digest::text, :route::text, s.session_uid, :status::integer, :answer::json, :at::timestamptz
from (select) as nothing
left join sessions s on s.tenant = :tenant::text and s.session_id = :session_id::text
where :session_id::text is null or s.session_uid is not null
on conflict (tenant, principal, key) do update set status = excluded.status, answer = excluded.answer, session_uid = excluded.session_uid
where idempotency_keys.digest = excluded.digest;

-- name: release_key(tenant, principal, key, at)!
-- Nothing happened under a key: it is as unused as before.
delete from idempotency_keys
where tenant = :tenant and principal = :principal and key = :key and created_at = :at and answer is null;
