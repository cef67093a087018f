-- name: note_steering(session_uid, id, number, content, profile, digest, own_turn_id, change, accepted_at)!
-- Steering that was accepted. Twice is once.
insert into steering (session_uid, id, number, content, profile, digest, own_turn_id, change, accepted_at)
values (:session_uid, :id, :number, :content, :profile, :digest, :own_turn_id, :change, :accepted_at)
on conflict (session_uid, id) do nothing;

-- name: pending_steering(session_uid, profile)
-- What waits for a turn of this profile, in the order of acceptance. Steering without a profile joins any turn.
select id, content, accepted_at from steering
where session_uid = :session_uid and status = 'pending' and (profile is null or profile = :profile)
order by number;

-- name: passed_over_profile(session_uid, profile)$
-- The profile of the oldest steering that a turn of this profile can't take; null if there is none.
select g.profile from steering g
where g.session_uid = :session_uid and g.status = 'pending' and g.profile <> :profile
order by g.number limit 1;

-- name: deliver_steering(session_uid, ids, changes, message_id, turn_id, before_segment, at)
-- The step that consumed it has finished. Each of them is a change of its own. `before_segment`: the step's first segment.
update steering g set status = 'delivered', delivered_at = greatest(:at, g.accepted_at), message_id = :message_id, turn_id = :turn_id,
  before_segment = :before_segment, change = d.change
from unnest(:ids::text[], :changes::bigint[]) as d (id, change)
where g.session_uid = :session_uid and g.id = d.id and g.status = 'pending'
returning g.id, g.number;

-- name: leaf_for_steering(session_uid, message_id)^
-- Whether a message can be extended: an assistant's without children.
select m.id, m.role = 'assistant' and not exists (
  select from messages c where c.session_uid = m.session_uid and c.parent_id = m.id) as extendable
from messages m where m.session_uid = :session_uid and m.id = :message_id;

-- name: known_steering(session_uid, id)^
-- What came under a steering id, and the turn of its own if it was promoted.
select g.digest, g.status = 'delivered' as delivered, t.turn_id as promoted_turn_id
from steering g
left join turns t on t.session_uid = g.session_uid and t.turn_id = g.own_turn_id
where g.session_uid = :session_uid and g.id = :id;

-- name: shown_steering(session_uid)
-- A session's steering in the order in which it is shown: by its delivery, until then by its acceptance.
select id, content, profile, status, turn_id, message_id, accepted_at, delivered_at
from steering
where session_uid = :session_uid
order by coalesce(delivered_at, accepted_at), number;

-- name: one_steering(session_uid, id)^
-- One steering as it is shown.
select id, content, profile, status, turn_id, message_id, accepted_at, delivered_at
from steering
where session_uid = :session_uid and id = :id;
