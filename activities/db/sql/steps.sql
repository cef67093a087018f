-- name: closed_step(session_uid, turn_id, attempt, step)^
-- What a step was answered when it was closed, if it was.
select result from steps where session_uid = :session_uid and turn_id = :turn_id and attempt = :attempt and step = :step;

-- name: close_step(session_uid, turn_id, attempt, step, result)^
-- Closes a step. No row: somebody closed it before.
insert into steps (session_uid, turn_id, attempt, step, result)
values (:session_uid, :turn_id, :attempt, :step, :result::json)
on conflict do nothing
returning step;

-- name: begin_run(session_uid, turn_id, attempt, step)^
-- A step begins, perhaps again: from here on the run that it gets is the only one that may write. And how far the step had got.
with begun as (
  update turns set run = run + 1 where session_uid = :session_uid and turn_id = :turn_id returning session_uid, turn_id, run
)
select begun.run, coalesce(p.model_index, 0) as model_index, coalesce(p.failures, 0) as failures, coalesce(p.seconds, 0) as seconds,
  coalesce(p.announced, 0) as announced
from begun
left join step_progress p
  on p.session_uid = begun.session_uid and p.turn_id = begun.turn_id and p.attempt = :attempt and p.step = :step;

-- name: note_progress(session_uid, turn_id, attempt, step, run, model_index, failures, seconds, announced)!
-- A provider failed, or a step announced calls before its end. An older run of the step has nothing to say.
insert into step_progress (session_uid, turn_id, attempt, step, model_index, failures, seconds, announced)
select t.session_uid, t.turn_id, :attempt, :step, :model_index, :failures, :seconds, :announced
from (
  select session_uid, turn_id from turns
  where session_uid = :session_uid and turn_id = :turn_id and run = :run
  for share
) as t
on conflict (session_uid, turn_id, attempt, step) do update set
  model_index = excluded.model_index, failures = excluded.failures, seconds = excluded.seconds, announced = excluded.announced;
