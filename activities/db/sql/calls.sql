-- name: insert_calls(session_uid, message_id, turn_id, attempt, step, at, call_ids, segments, positions, tool_names, categories, arguments, digests, options, deadlines)!
-- The calls of a response, open. Pause tokens of a host's call name it by its own token id, which follows from session and call.
insert into calls (session_uid, call_id, message_id, segment, turn_id, attempt, step, position, tool_name, category, arguments,
  arguments_digest, options, token_id, state, requested_at, deadline_at)
select :session_uid::uuid, c.call_id, :message_id, c.segment, :turn_id, :attempt, :step, c.position, c.tool_name, c.category,
  c.arguments::json, c.digest, c.options::json, case when c.category = 'host' then md5(:session_uid::uuid || '/' || c.call_id)::uuid end, 'open', :at, c.deadline
from unnest(:call_ids::text[], :segments::integer[], :positions::integer[], :tool_names::text[], :categories::text[], :arguments::text[],
  :digests::text[], :options::text[], :deadlines::timestamptz[])
  as c (call_id, segment, position, tool_name, category, arguments, digest, options, deadline);

-- name: call_ids_taken(session_uid, call_ids)
-- Which call ids the session knows already: a provider may repeat itself.
select call_id from calls where session_uid = :session_uid and call_id = any(:call_ids::text[]);

-- name: record_call(session_uid, call_id, outcome, status, output, model_text, duration_ms, at)^
-- A call gets its result, once. No row: it has one.
update calls set state = 'recorded', outcome = :outcome, status = :status, output = :output::json, model_text = :model_text,
  duration_ms = :duration_ms, recorded_at = greatest(:at, requested_at)
where session_uid = :session_uid and call_id = :call_id and state = 'open'
returning call_id, message_id, turn_id, attempt, step, tool_name, category, duration_ms, requested_at;

-- name: find_call(session_uid, call_id)^
-- One call; `paused` if its step's host calls have been handed over.
select call_id, message_id, turn_id, attempt, step, position, tool_name, category, arguments, arguments_digest, state, outcome, status,
  output, model_text, duration_ms, requested_at, recorded_at,
  exists (select from host_batches b where b.session_uid = c.session_uid and b.turn_id = c.turn_id and b.step = c.step) as paused
from calls c where session_uid = :session_uid and call_id = :call_id;

-- name: open_calls(session_uid)
-- Every call without a result, in order.
select call_id, message_id, turn_id, attempt, step, tool_name, category, requested_at
from calls where session_uid = :session_uid and state = 'open' order by requested_at, step, segment, position;

-- name: repaired_calls(session_uid, at)
-- What a repair resolved at that time, in order; `waited`: the host was awaited for it.
select call_id, category = 'host' and exists (
  select from host_batches b where b.session_uid = c.session_uid and b.turn_id = c.turn_id and b.step = c.step
) as waited
from calls c
where session_uid = :session_uid and state = 'recorded' and status = 'unknown' and recorded_at = greatest(cast(:at as timestamptz), requested_at)
order by requested_at, step, segment, position;

-- name: calls_of_step(session_uid, message_id, turn_id, attempt, step)
-- The calls of one response, in the model's order.
select call_id, tool_name, category, arguments, arguments_digest, options, state, outcome, status, output, model_text, duration_ms,
  requested_at, recorded_at, deadline_at
from calls
where session_uid = :session_uid and message_id = :message_id and turn_id = :turn_id and attempt = :attempt and step = :step
order by segment, position;

-- name: retried_calls(session_uid, turn_id)
-- How often each tool's arguments went back to the model in a turn.
select tool_name, count(*)::integer as times from calls
where session_uid = :session_uid and turn_id = :turn_id and outcome = 'retried' group by tool_name;

-- name: open_batch(session_uid, message_id, turn_id, step, handover, at)!
-- The host calls of a response begin to wait. The unique index refuses a second open batch.
insert into host_batches (session_uid, message_id, turn_id, step, handover, state, opened_at)
values (:session_uid, :message_id, :turn_id, :step, :handover, 'open', :at);

-- name: close_batches(session_uid)
-- No host action is pending any more.
update host_batches set state = 'closed' where session_uid = :session_uid and state = 'open'
returning message_id, turn_id, step;

-- name: current_batch(session_uid)^
-- The open batch.
select b.message_id, b.turn_id, b.step, b.handover, t.number, t.attempt, t.kind, t.user_message_id, t.profile, t.config, t.accepted_at
from host_batches b join turns t on t.session_uid = b.session_uid and t.turn_id = b.turn_id
where b.session_uid = :session_uid and b.state = 'open';

-- name: handover_of_step(session_uid, turn_id, attempt, step)$
-- How a step's host calls are handed over.
select result ->> 'handover' from steps
where session_uid = :session_uid and turn_id = :turn_id and attempt = :attempt and step = :step;

-- name: start_deadlines(session_uid, call_ids, at)!
-- The host is asked for these calls now; their deadlines, if they have any, count from here.
update calls set deadline_at = :at::timestamptz + make_interval(secs => (options ->> 'deadline_seconds')::double precision)
where session_uid = :session_uid and call_id = any(:call_ids::text[]) and deadline_at is null and options ->> 'deadline_seconds' is not null;
