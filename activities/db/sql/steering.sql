-- name: note_steering(session_uid, id, number, content, profile, digest, turn_id, change, accepted_at)!
-- Steering that was accepted. Twice is once.
insert into steering (session_uid, id, number, content, profile, digest, turn_id, change, accepted_at)
values (:session_uid, :id, :number, :content, :profile, :digest, :turn_id, :change, :accepted_at)
on conflict (session_uid, id) do nothing;

-- name: pending_steering(session_uid, profile)
-- What waits for a turn of this profile, in the order of acceptance. Steering without a profile joins any turn.
select id, content, accepted_at from steering
where session_uid = :session_uid and status = 'pending' and (profile is null or profile = :profile)
order by number;

-- name: deliver_steering(session_uid, ids, message_id, turn_id, change, at)
-- The step that consumed it has finished.
update steering set status = 'delivered', delivered_at = greatest(:at, accepted_at), message_id = :message_id, turn_id = :turn_id, change = :change
where session_uid = :session_uid and id = any(:ids::text[]) and status = 'pending'
returning id, number;

-- name: leaf_for_steering(session_uid, message_id)^
-- Whether a message can be extended: an assistant's without children.
select m.id, m.role = 'assistant' and not exists (
  select from messages c where c.session_uid = m.session_uid and c.parent_id = m.id) as extendable
from messages m where m.session_uid = :session_uid and m.id = :message_id;
