-- name: count_session_rows(session_uid)
-- Everything that Postgres holds of a session, by table. What outlives it has no content: the ledger, the audit, the erasure itself.
select 'sessions' as name, count(*)::integer as rows from sessions where session_uid = :session_uid
union all select 'branches', count(*)::integer from branches where session_uid = :session_uid
union all select 'messages', count(*)::integer from messages where session_uid = :session_uid
union all select 'segments', count(*)::integer from segments where session_uid = :session_uid
union all select 'model_messages', count(*)::integer from model_messages where session_uid = :session_uid
union all select 'turns', count(*)::integer from turns where session_uid = :session_uid
union all select 'steering', count(*)::integer from steering where session_uid = :session_uid
union all select 'steps', count(*)::integer from steps where session_uid = :session_uid
union all select 'step_progress', count(*)::integer from step_progress where session_uid = :session_uid
union all select 'host_batches', count(*)::integer from host_batches where session_uid = :session_uid
union all select 'calls', count(*)::integer from calls where session_uid = :session_uid
union all select 'events', count(*)::integer from events where session_uid = :session_uid
union all select 'live_deltas', count(*)::integer from live_deltas where session_uid = :session_uid
union all select 'idempotency_keys', count(*)::integer from idempotency_keys where session_uid = :session_uid;

-- name: note_erasure(id, tenant, session_id, principal, rows, begun_at)!
-- The rows of a session go in this transaction. Twice is once.
insert into erasures (id, tenant, session_id, principal, rows, begun_at)
values (:id, :tenant, :session_id, :principal, :rows, :begun_at)
on conflict do nothing;

-- name: rows_erased(id)$
-- What was counted when a session's rows went, as JSON text; none if they have not.
select rows::text from erasures where id = :id;

-- name: begin_principal_erasure(id, tenant, principal, begun_at)!
-- A principal's erasure begins, or is gone on with: what is theirs beside sessions goes, and is counted with what went before.
with gone as (
  delete from idempotency_keys where tenant = :tenant::text and principal = :principal::text returning key
)
insert into erasures (id, tenant, principal, rows, begun_at)
select :id::uuid, :tenant::text, :principal::text, json_build_object('idempotency_keys', count(*)), :begun_at::timestamptz from gone
on conflict (id) do update set rows = json_build_object(
  'idempotency_keys', (erasures.rows ->> 'idempotency_keys')::integer + (excluded.rows ->> 'idempotency_keys')::integer
);

-- name: sessions_to_erase(tenant, principal, before, page)
-- Sessions that a principal owns now and that began before a time, some of them.
select session_uid, session_id from sessions
where tenant = :tenant and owner = :principal and created_at <= :before
order by updated_at desc, session_uid
limit :page;

-- name: count_sessions_of(tenant, principal)$
-- How many sessions a principal owns.
select count(*)::integer from sessions where tenant = :tenant and owner = :principal;

-- name: any_session()$
-- Whether there is a session at all.
select exists (select from sessions);

-- name: join_erasures(part_of, ids)!
-- Erasures of sessions become parts of their owner's.
update erasures set part_of = :part_of where id = any (:ids::uuid[]) and part_of is null and id <> :part_of;

-- name: unverified_sessions(id, count)
-- Erasures of sessions that have not been verified: the one of this id, or parts of it, the oldest ones; and how many there are.
select id, tenant, session_id, begun_at, count(*) over ()::integer as parts
from erasures
where (part_of = :id or id = :id) and session_id is not null and verified_at is null
order by begun_at, id
limit :count;

-- name: unfinished_principal_erasure(tenant, principal)$
-- The erasure of a principal that has not come to its end, if there is one.
select id from erasures
where tenant = :tenant and principal = :principal and session_id is null and verified_at is null
order by begun_at, id
limit 1;

-- name: verify_erasure(id, workflow_runs, at)!
-- Somebody looked again and found nothing. Once. Nobody comes again to remove what was counted by its name.
with over as (
  delete from erased_objects where erasure_id = :id::uuid
)
update erasures set workflow_runs = :workflow_runs, verified_at = :at where id = :id::uuid and verified_at is null;

-- name: find_erasure(id)^
-- An erasure with its parts.
select e.tenant, e.principal, e.session_id, e.begun_at, e.verified_at,
  e.workflow_runs + coalesce(sum(p.workflow_runs), 0)::integer as workflow_runs, e.payloads + coalesce(sum(p.payloads), 0)::integer as payloads,
  coalesce(array_agg(p.session_id order by p.begun_at, p.id) filter (where p.id is not null), '{}') as parts,
  count(p.verified_at)::integer as parts_verified
from erasures e
left join erasures p on p.part_of = e.id
where e.id = :id
group by e.id;

-- name: rows_erased_by_table(id)
-- What an erasure and its parts removed, by table.
select r.key as name, sum(r.value::integer)::integer as rows
from erasures e
cross join json_each_text(e.rows) as r
where e.id = :id or e.part_of = :id
group by r.key
order by r.key;
