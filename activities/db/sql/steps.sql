-- name: closed_step(session_uid, turn_id, attempt, step)^
-- What a step was answered when it was closed, if it was.
select result from steps where session_uid = :session_uid and turn_id = :turn_id and attempt = :attempt and step = :step;

-- name: close_step(session_uid, turn_id, attempt, step, result)^
-- Closes a step. No row: somebody closed it before.
insert into steps (session_uid, turn_id, attempt, step, result)
values (:session_uid, :turn_id, :attempt, :step, :result::json)
on conflict do nothing
returning step;

-- name: step_progress(session_uid, turn_id, attempt, step)^
-- How far an open step has got.
select model_index, failures, seconds, announced from step_progress
where session_uid = :session_uid and turn_id = :turn_id and attempt = :attempt and step = :step;

-- name: note_progress(session_uid, turn_id, attempt, step, model_index, failures, seconds, announced)!
-- A provider failed, or a step announced calls before its end.
insert into step_progress (session_uid, turn_id, attempt, step, model_index, failures, seconds, announced)
values (:session_uid, :turn_id, :attempt, :step, :model_index, :failures, :seconds, :announced)
on conflict (session_uid, turn_id, attempt, step) do update set
  model_index = excluded.model_index, failures = excluded.failures, seconds = excluded.seconds, announced = excluded.announced;
