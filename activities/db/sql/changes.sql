-- name: feed_position(session_uid)^
-- How far a session's changes go, and its active leaf.
select feed, active_leaf_id from sessions where session_uid = :session_uid;

-- name: changes_after(session_uid, change, since, count)
-- What changed after a number, or since a time: messages and steering in the order of their commits, by their newest change. A page ends
-- between two numbers, so a number is a place to go on from.
select change, kind, id
from (
  select change, 'message' as kind, id, updated_at from messages where session_uid = :session_uid and change > :change
  union all
  select change, 'steering', id, coalesce(delivered_at, accepted_at) from steering where session_uid = :session_uid and change > :change
) as changed
where cast(:since as timestamptz) is null or updated_at > :since
order by change
fetch first :count rows with ties;

-- name: some_messages(session_uid, ids)
-- Messages by their ids.
select
  m.id, m.parent_id, m.role, m.content, m.turn_id, m.profile, m.model, m.usage::text as usage, m.error::text as error,
  m.attachments::text as attachments, m.created_at, m.updated_at
from messages m
where m.session_uid = :session_uid and m.id = any(cast(:ids as text[]));

-- name: some_steering(session_uid, ids)
-- Steering by its ids.
select id, content, profile, status, turn_id, message_id, accepted_at, delivered_at
from steering
where session_uid = :session_uid and id = any(cast(:ids as text[]));

-- name: prompt_of(session_uid, message_id)^
-- The record of what the model was told before the conversation, for the newest answer in this message; null for a message without any.
select prompt::text as prompt from messages where session_uid = :session_uid and id = :message_id;

-- name: prompt_texts(hashes)
-- The texts of stable parts.
select sha256, text from prompt_snapshots where sha256 = any(cast(:hashes as text[]));
