-- name: forget_keys(before)!
-- Idempotency keys are remembered for a while.
delete from idempotency_keys where created_at <= :before;

-- name: reserve_key(tenant, principal, key, digest, route, at)^
-- Whose key it is: the row that is made now, or the one that came before; and who owns the session now that its answer is of.
with reserved as (
  insert into idempotency_keys (tenant, principal, key, digest, route, created_at)
  values (:tenant::text, :principal::text, :key::text, :digest::text, :route::text, :at::timestamptz)
  on conflict do nothing
  returning digest, created_at
)
select digest, created_at, null as answer, false as of_session, null as owner from reserved
union all
select k.digest, k.created_at, k.answer::text, k.session_uid is not null, s.owner
from idempotency_keys k
left join sessions s on s.session_uid = k.session_uid
where k.tenant = :tenant::text and k.principal = :principal::text and k.key = :key::text and not exists (select from reserved);

-- name: keep_answer(tenant, principal, key, digest, route, at, status, answer, session_uid)!
-- What was answered under a key. With a session it is kept only while that session is there: one that is being deleted is waited for.
insert into idempotency_keys (tenant, principal, key, digest, route, session_uid, status, answer, created_at)
select :tenant::text, :principal::text, :key::text, :digest::text, :route::text, s.session_uid, :status::integer, :answer::json, :at::timestamptz
from (select) as nothing
left join (select session_uid from sessions where session_uid = :session_uid::uuid for key share) s on true
where :session_uid::uuid is null or s.session_uid is not null
on conflict (tenant, principal, key) do update set status = excluded.status, answer = excluded.answer, session_uid = excluded.session_uid
where idempotency_keys.digest = excluded.digest;

-- name: release_key(tenant, principal, key, at)!
-- Nothing happened under a key: it is as unused as before.
delete from idempotency_keys
where tenant = :tenant and principal = :principal and key = :key and created_at = :at and answer is null;
