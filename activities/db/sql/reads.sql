-- name: open_door(tenant, session_id, message_id, parent_id, turn_id, call_id, expires, held)^
-- Everything that the rows know about an input before it is sent: its session, and which of the ids that it names exist.
-- A session whose time is over reads as absent from that moment on, whenever its rows go. What holds it is a live turn and, if `held`, a
-- host that is waited for. The same in every statement of this file that finds sessions.
select
  s.session_uid, s.owner, s.profile, s.subject, s.revision,
  m.id is not null as message_known, m.digest as message_digest, m.turn_id as message_turn_id,
  p.id is not null as parent_known,
  t.turn_id is not null as turn_known,
  c.state as call_state, c.status as call_status,
  n.turn_id as newest_turn_id, n.state as newest_turn_state
from sessions s
left join messages m on m.session_uid = s.session_uid and m.id = cast(:message_id as text)
left join messages p on p.session_uid = s.session_uid and p.id = cast(:parent_id as text)
left join turns t on t.session_uid = s.session_uid and t.turn_id = cast(:turn_id as text)
left join calls c on c.session_uid = s.session_uid and c.call_id = cast(:call_id as text)
left join lateral (
  select turn_id, state from turns where session_uid = s.session_uid order by number desc limit 1
) n on true
where s.tenant = :tenant and s.session_id = :session_id
  and not (
    cast(:expires as boolean) and s.expires_at is not null and s.expires_at <= now()
    and not exists (select from turns l where l.session_uid = s.session_uid and l.state = 'running')
    and not (cast(:held as boolean) and exists (select from host_batches h where h.session_uid = s.session_uid and h.state = 'open'))
  );

-- name: list_sessions(tenant, owner, updated_after, before_at, before_uid, count, expires, held)
-- One page of sessions, newest first. A null owner lists the whole tenant; the cursor is the last row of the page before.
select
  s.session_uid, s.session_id, s.owner, s.title, s.turn_number, s.message_count, s.created_at, s.updated_at, s.expires_at,
  exists (select from turns t where t.session_uid = s.session_uid and t.state = 'running') as running,
  exists (select from host_batches b where b.session_uid = s.session_uid and b.state = 'open') as waiting
from sessions s
where s.tenant = :tenant
  and s.kind = 'conversation'
  and not (
    cast(:expires as boolean) and s.expires_at is not null and s.expires_at <= now()
    and not exists (select from turns l where l.session_uid = s.session_uid and l.state = 'running')
    and not (cast(:held as boolean) and exists (select from host_batches h where h.session_uid = s.session_uid and h.state = 'open'))
  )
  and (cast(:owner as text) is null or s.owner = :owner)
  and (cast(:updated_after as timestamptz) is null or s.updated_at > :updated_after)
  and (
    cast(:before_at as timestamptz) is null
    or s.updated_at < :before_at
    or (s.updated_at = :before_at and s.session_uid > cast(:before_uid as uuid))
  )
order by s.updated_at desc, s.session_uid
limit :count;

-- name: session_detail(tenant, session_id, expires, held)^
-- One session with its live turn and the calls that wait for the host, in model order.
select
  s.session_uid, s.session_id, s.owner, s.profile, s.subject, s.title, s.active_leaf_id, s.revision, s.turn_number, s.message_count,
  s.created_at, s.updated_at, s.expires_at,
  t.turn_id, t.number, t.attempt, t.kind, t.message_id, t.user_message_id, t.started_at,
  w.message_id as pending_message_id, w.calls as pending_calls, w.handover, w.opened_at
from sessions s
left join turns t on t.session_uid = s.session_uid and t.state = 'running'
left join lateral (
  select
    b.message_id, b.handover, b.opened_at,
    json_agg(
      json_build_object(
        'call_id', c.call_id, 'tool_name', c.tool_name, 'arguments', c.arguments, 'requested_at', c.requested_at,
        'deadline_at', c.deadline_at, 'token_id', c.token_id,
        'digest', encode(sha256(convert_to(c.arguments::text, 'UTF8')), 'hex')
      ) order by c.segment, c.position
    )::text as calls
  from host_batches b
  join calls c on c.session_uid = b.session_uid and c.turn_id = b.turn_id and c.step = b.step and c.category = 'host' and c.state = 'open'
  where b.session_uid = s.session_uid and b.state = 'open'
  group by b.message_id, b.handover, b.opened_at
) w on true
where s.tenant = :tenant and s.session_id = :session_id
  and not (
    cast(:expires as boolean) and s.expires_at is not null and s.expires_at <= now()
    and not exists (select from turns l where l.session_uid = s.session_uid and l.state = 'running')
    and not (cast(:held as boolean) and exists (select from host_batches h where h.session_uid = s.session_uid and h.state = 'open'))
  );

-- name: list_host_actions(tenant, owner, after_at, after_uid, count, expires, held)
-- One page of the calls that wait for hosts, oldest first, one row a session. A null owner lists the whole tenant.
select b.session_uid, b.opened_at, b.handover, s.session_id, s.owner, b.message_id, w.calls
from host_batches b
join sessions s on s.session_uid = b.session_uid
join lateral (
  select
    json_agg(
      json_build_object(
        'call_id', c.call_id, 'tool_name', c.tool_name, 'arguments', c.arguments, 'requested_at', c.requested_at,
        'deadline_at', c.deadline_at, 'token_id', c.token_id,
        'digest', encode(sha256(convert_to(c.arguments::text, 'UTF8')), 'hex')
      ) order by c.segment, c.position
    )::text as calls
  from calls c
  where c.session_uid = b.session_uid and c.turn_id = b.turn_id and c.step = b.step and c.category = 'host' and c.state = 'open'
) w on w.calls is not null
where b.state = 'open'
  and s.tenant = :tenant
  and not (
    cast(:expires as boolean) and s.expires_at is not null and s.expires_at <= now()
    and not exists (select from turns l where l.session_uid = s.session_uid and l.state = 'running')
    and not (cast(:held as boolean) and exists (select from host_batches h where h.session_uid = s.session_uid and h.state = 'open'))
  )
  and (cast(:owner as text) is null or s.owner = :owner)
  and (
    cast(:after_at as timestamptz) is null
    or b.opened_at > :after_at
    or (b.opened_at = :after_at and b.session_uid > cast(:after_uid as uuid))
  )
order by b.opened_at, b.session_uid
limit :count;

-- name: turn_outcome(session_uid, turn_id)^
-- How far a turn is, and what it answered once it has ended.
select t.attempt, t.message_id, t.user_message_id, t.final::text as final, t.ended_at, s.owner
from turns t join sessions s on s.session_uid = t.session_uid
where t.session_uid = :session_uid and t.turn_id = :turn_id;

-- name: path_messages(session_uid, leaf_id)
-- The messages from the root to a leaf: one index range for each branch of the leaf's chain.
select
  m.id, m.parent_id, m.role, m.content, m.turn_id, m.profile, m.model, m.usage::text as usage, m.error::text as error,
  m.attachments::text as attachments, m.created_at, m.updated_at
from messages leaf
join branches b on b.session_uid = leaf.session_uid and b.branch = leaf.branch
cross join lateral unnest(b.chain, b.chain_depths) as link (branch, deepest)
join messages m on m.session_uid = leaf.session_uid and m.branch = link.branch and m.depth <= least(link.deepest, leaf.depth)
where leaf.session_uid = :session_uid and leaf.id = :leaf_id
order by m.depth;

-- name: one_message(session_uid, message_id)^
-- One message of the tree.
select
  m.id, m.parent_id, m.role, m.content, m.turn_id, m.profile, m.model, m.usage::text as usage, m.error::text as error,
  m.attachments::text as attachments, m.created_at, m.updated_at
from messages m
where m.session_uid = :session_uid and m.id = :message_id;

-- name: display_segments(session_uid, message_ids)
-- The segments of some messages, in order.
select message_id, position, kind, text, data::text as data
from segments
where session_uid = :session_uid and message_id = any(cast(:message_ids as text[]))
order by message_id, position;

-- name: display_calls(session_uid, message_ids)
-- The tool calls of some messages, in the order in which they are shown.
select message_id, segment, call_id, tool_name, arguments::text as arguments, state, outcome, status, output::text as output
from calls
where session_uid = :session_uid and message_id = any(cast(:message_ids as text[]))
order by message_id, segment, position;

-- name: tree_messages(session_uid)
-- Every message of a session, parents before their children.
select id, parent_id, role, content, created_at
from messages
where session_uid = :session_uid
order by depth, created_at, id;

-- name: refusal_of_turn(session_uid, turn_id)^
-- Why an accepted input got no turn: the rows refused it lately, or its session is erased, and then there are no words about it.
(select e.data ->> 'code' as code, e.data ->> 'message' as message
  from sessions s join events e on e.session_uid = s.session_uid and e.seq > s.cursor - 100
  where s.session_uid = :session_uid and e.type = 'input.refused' and e.data ->> 'refused_turn_id' = :turn_id
  order by e.seq desc limit 1)
union all select 'not_found', null from erasures where id = :session_uid;
