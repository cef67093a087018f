-- name: add_api_key(key_id, hash, tenant, principal, roles, created_at, expires_at)!
-- A new key.
insert into api_keys (key_id, hash, tenant, principal, roles, created_at, expires_at)
values (:key_id, :hash, :tenant, :principal, :roles, :created_at, :expires_at);

-- name: find_api_key(key_id)^
-- One key, whatever has become of it.
select key_id, hash, tenant, principal, roles, created_at, expires_at, last_used_at, revoked_at
from api_keys
where key_id = :key_id;

-- name: list_api_keys(tenant)
-- The keys of a tenant, or of all of them, oldest first.
select key_id, hash, tenant, principal, roles, created_at, expires_at, last_used_at, revoked_at
from api_keys
where cast(:tenant as text) is null or tenant = :tenant
order by tenant, created_at, key_id;

-- name: stamp_api_key(key_id, at, before)!
-- That a key was used, unless another process has just said so.
update api_keys set last_used_at = :at
where key_id = :key_id and (last_used_at is null or last_used_at <= :before);

-- name: revoke_api_key(key_id, at)^
-- Ends a key. Once: a second time finds none.
update api_keys set revoked_at = :at
where key_id = :key_id and revoked_at is null
returning tenant, principal;
