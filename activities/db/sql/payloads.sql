-- name: store_payloads(keys, workflow_id, bodies, at)!
-- Keeps payloads that are too large for Temporal's history, under the workflow that an erasure finds them by.
insert into payloads (key, workflow_id, body, created_at)
select p.key, :workflow_id, p.body, :at
from unnest(:keys::uuid[], :bodies::bytea[]) as p (key, body);

-- name: load_payloads(keys)
-- The payloads that history refers to.
select key, body from payloads where key = any (:keys::uuid[]);

-- name: delete_payloads_before(workflow_id, before)
-- Payloads of a workflow id that is being erased. Its next life's are younger.
delete from payloads where workflow_id = :workflow_id and created_at <= :before
returning key;
