-- name: insert_turn(session_uid, turn_id, number, kind, message_id, user_message_id, profile, config, accepted_at)!
-- A turn begins. The unique index refuses a second live one. Results of earlier turns have been read by their workflow and go.
with forgotten as (
  update steps set result = null where session_uid = :session_uid::uuid and turn_id <> :turn_id and result is not null
)
insert into turns (session_uid, turn_id, number, attempt, kind, state, message_id, user_message_id, profile, config, accepted_at, started_at)
values (:session_uid, :turn_id, :number, 1, :kind, 'running', :message_id, :user_message_id, :profile, :config::json, :accepted_at, :accepted_at);

-- name: restart_turn(session_uid, turn_id, attempt, accepted_at)!
-- Another attempt of a turn that failed.
update turns set attempt = :attempt, state = 'running', error = null, final = null, ended_at = null, started_at = :accepted_at
where session_uid = :session_uid and turn_id = :turn_id and attempt < :attempt and state = 'failed';

-- name: extend_turn(session_uid, turn_id, message_id, attempt, step, content, model, turn_usage, message_usage, first_text_at, error, prompt, change, at, requests, tenant, principal, input_tokens, output_tokens, cost_usd)^
-- A step's text, model and usage on its turn and on its assistant message, where usage is of the whole message; and what the step's
-- request cost, in the ledger, which is kept apart from the session.
with message as (
  update messages set content = content || :content::text, model = coalesce(:model::text, model), usage = :message_usage::json,
    error = :error::json, prompt = coalesce(:prompt::json, prompt), change = :change, updated_at = greatest(updated_at, :at::timestamptz),
    said_at = case when :content::text = '' then said_at else greatest(said_at, :at::timestamptz) end
  where session_uid = :session_uid::uuid and id = :message_id::text
), ledger as (
  insert into usage_ledger (session_uid, turn_id, attempt, step, tenant, principal, model, input_tokens, output_tokens, cost_usd, at)
  select :session_uid::uuid, :turn_id::text, :attempt::integer, :step::integer, :tenant, :principal, coalesce(:model::text, ''),
    :input_tokens, :output_tokens, :cost_usd, :at::timestamptz
  where :requests::integer > 0
  on conflict do nothing
)
update turns set content = content || :content::text, model = coalesce(:model::text, model), usage = :turn_usage::json,
  first_text_at = coalesce(first_text_at, :first_text_at), steps = greatest(steps, :step::integer)
where session_uid = :session_uid::uuid and turn_id = :turn_id::text
returning number, attempt, state, message_id, user_message_id, content, model, usage;

-- name: turn_so_far(session_uid, turn_id)^
-- A turn as it stands.
select number, attempt, kind, state, message_id, user_message_id, profile, content, model, usage, steps
from turns where session_uid = :session_uid and turn_id = :turn_id;

-- name: rewind_turn_content(session_uid, turn_id)!
-- A turn's plain text from the segments that are left.
update turns t set content = coalesce((
  select string_agg(text, '' order by position) from segments s
  where s.session_uid = t.session_uid and s.message_id = t.message_id and s.turn_id = t.turn_id and s.kind = 'text'), '')
where t.session_uid = :session_uid and t.turn_id = :turn_id;

-- name: finish_turn(session_uid, turn_id, state, error, final, at)!
-- A turn ends, once an attempt.
update turns set state = :state, error = :error::json, final = :final::json, ended_at = greatest(:at, started_at)
where session_uid = :session_uid and turn_id = :turn_id and state = 'running';

-- name: left_of_step(session_uid, turn_id, attempt, step)^
-- When a turn ended and after how many steps, and what was kept of the step that it was at: segments for readers, a partial answer for the model.
select t.ended_at, t.steps,
  (select coalesce(json_agg(json_build_object('place', s.position, 'kind', s.kind, 'text', s.text) order by s.position), '[]')
    from segments s where s.session_uid = t.session_uid and s.message_id = t.message_id and s.turn_id = t.turn_id and s.attempt = :attempt
      and s.step = :step) as segments,
  (select m.body::text from model_messages m where m.session_uid = t.session_uid and m.message_id = t.message_id and m.turn_id = t.turn_id
      and m.attempt = :attempt and m.step = :step and m.kind = 'response' order by m.position desc limit 1) as response
from turns t where t.session_uid = :session_uid and t.turn_id = :turn_id;

-- name: live_turn(session_uid)^
-- The turn that the rows show as running.
select turn_id, attempt, number, kind, message_id, user_message_id, accepted_at from turns
where session_uid = :session_uid and state = 'running';

-- name: newest_turn(session_uid)^
-- The turn with the highest number.
select turn_id, number, attempt, kind, state, message_id, user_message_id, profile, config, accepted_at, ended_at, error, steps
from turns where session_uid = :session_uid order by number desc limit 1;

-- name: keep_prompt(sha256, text, at)!
-- The stable part of a system prompt, once.
insert into prompt_snapshots (sha256, text, created_at) values (:sha256, :text, :at) on conflict do nothing;

-- name: running_turns(most)
-- Turns that the rows show as running, in all tenants, the oldest first.
select s.tenant, s.session_id, t.turn_id, t.number, t.started_at
from turns t join sessions s using (session_uid) where t.state = 'running' order by t.started_at limit :most;
