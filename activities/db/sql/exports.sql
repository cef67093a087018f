-- name: export_tips(session_uid)
-- Every branch of a session as long as it is now: the messages of a moment, since branches only ever grow at their end.
select branch, coalesce(chain_depths[cardinality(chain_depths) - 1] + 1, 0) as first, tip_depth as last
from branches where session_uid = :session_uid order by branch;

-- name: export_path(session_uid, leaf_id)
-- The same of one path: which depths of which branches lead from the root to a leaf.
select link.branch, least(link.deepest, leaf.depth) as last, coalesce(lag(link.deepest) over (order by link.number) + 1, 0) as first
from messages leaf
join branches b on b.session_uid = leaf.session_uid and b.branch = leaf.branch
cross join lateral unnest(b.chain, b.chain_depths) with ordinality as link (branch, deepest, number)
where leaf.session_uid = :session_uid and leaf.id = :leaf_id
order by link.number;

-- name: export_messages(session_uid, branch, first, count)
-- The next messages of a branch.
select
  m.id, m.parent_id, m.role, m.content, m.branch, m.depth, m.turn_id, m.profile, m.model, m.usage::text as usage, m.error::text as error,
  m.attachments::text as attachments, m.created_at, m.updated_at
from messages m
where m.session_uid = :session_uid and m.branch = :branch and m.depth >= :first
order by m.depth
limit :count;

-- name: export_model_messages(session_uid, message_ids)
-- Some messages as the model saw and wrote them.
select message_id, body::text as body
from model_messages
where session_uid = :session_uid and message_id = any(cast(:message_ids as text[]))
order by message_id, position;

-- name: export_steering(session_uid, message_ids)
-- The steering that some messages took, in order, with the place in the message where it was taken.
select id, content, profile, status, turn_id, message_id, accepted_at, delivered_at, before_segment
from steering
where session_uid = :session_uid and message_id = any(cast(:message_ids as text[]))
order by before_segment, number;

-- name: export_pending_steering(session_uid)
-- The steering that waits.
select id, content, profile, status, turn_id, message_id, accepted_at, delivered_at
from steering
where session_uid = :session_uid and status = 'pending'
order by number;
