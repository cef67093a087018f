-- name: store_payloads(keys, workflow_id, bodies, at)!
-- Keeps payloads that are too large for Temporal's history, under the workflow that an erasure finds them by.
insert into payloads (key, workflow_id, body, created_at)
select p.key, :workflow_id, p.body, :at
from unnest(:keys::uuid[], :bodies::bytea[]) as p (key, body);

-- name: load_payloads(keys, workflow_prefix)
-- The payloads that history refers to, of workflows whose ids begin so.
select key, body from payloads where key = any (:keys::uuid[]) and starts_with(workflow_id, :workflow_prefix);

-- name: payloads_of_workflow(workflow_id)
-- Payloads of a workflow id, and since when.
select key, created_at from payloads where workflow_id = :workflow_id;

-- name: delete_payloads(keys, erasure_id)$
-- Removes payloads, counts them for the erasure that they go with (none: they were left over), and answers how many.
with gone as (
  delete from payloads where key = any (:keys::uuid[]) returning key
), counted as (
  update erasures set payloads = payloads + (select count(*) from gone) where id = :erasure_id::uuid
)
select count(*)::integer from gone;

-- name: workflows_with_payloads(before)
-- Workflows that have payloads from before a time.
select distinct workflow_id from payloads where created_at <= :before order by workflow_id;

-- name: count_erased_objects(erasure_id, names)!
-- Counts payloads in S3 for the erasure that is about to remove them: each once, whoever comes again.
with counted as (
  insert into erased_objects (erasure_id, name)
  select :erasure_id::uuid, name
  from unnest(:names::text[]) as n (name)
  on conflict do nothing
  returning name
)
update erasures set payloads = payloads + (select count(*) from counted) where id = :erasure_id::uuid;
