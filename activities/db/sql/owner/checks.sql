-- What must hold of a session's rows by themselves, whatever made them: each answer is a row that says what is wrong with which row.
-- The assistant message and the calls of a turn that runs are still being written, and are left out.

-- name: check_session(session_uid)
-- The session's own row against what it counts, and its leaf.
with s as (
  select * from actual_sessions where session_uid = :session_uid::uuid
), m as (
  select count(*) as messages, max(change) as change from actual_messages where session_uid = :session_uid::uuid
)
select 'leaf that is not there' as what, 'sessions ' || s.session_id as row, 'a message' as expected, coalesce(s.active_leaf_id, 'null') as found
from s cross join m
where case when s.active_leaf_id is null then m.messages > 0
  else not exists (select from actual_messages l where l.session_uid = s.session_uid and l.id = s.active_leaf_id) end
union all
select 'wrong count of messages', 'sessions ' || s.session_id, m.messages::text, s.message_count::text from s cross join m where s.message_count <> m.messages
union all
select 'change number behind the feed', 'sessions ' || s.session_id, 'at least ' || m.change, s.feed::text from s cross join m where s.feed < m.change
union all
select 'gap in the turns', 'sessions ' || s.session_id, 'turns 1 to ' || s.turn_number, t.turns || ' turns up to ' || t.last
from s cross join lateral (
  select count(*) as turns, coalesce(max(number), 0) as last from actual_turns where session_uid = s.session_uid) t
where t.turns <> s.turn_number or t.last <> s.turn_number
union all
select 'gap in the events', 'sessions ' || s.session_id, 'events ' || s.events_from + 1 || ' to ' || s.cursor, e.events || ' events up to ' || e.last
from s cross join lateral (
  select count(*) as events, coalesce(max(seq), 0) as last from actual_events where session_uid = s.session_uid and seq > s.events_from) e
where e.events <> s.cursor - s.events_from or (e.events > 0 and e.last <> s.cursor)
union all
select 'streamed text without a turn that runs', 'sessions ' || s.session_id, 'none', 'some' from s
where exists (select from actual_live_deltas d where d.session_uid = s.session_uid)
  and not exists (select from actual_turns t where t.session_uid = s.session_uid and t.state = 'running');

-- name: check_tree(session_uid)
-- Each message hangs right under its parent, on a branch that leads there.
with m as (
  select * from actual_messages where session_uid = :session_uid::uuid
), b as (
  select * from actual_branches where session_uid = :session_uid::uuid
)
select 'parent that is not there' as what, 'messages ' || m.id as row, 'a message' as expected, m.parent_id as found
from m where m.parent_id is not null and not exists (select from m p where p.id = m.parent_id)
union all
select 'wrong depth', 'messages ' || m.id, (p.depth + 1)::text, m.depth::text from m join m p on p.id = m.parent_id where m.depth <> p.depth + 1
union all
select 'branch that is not there', 'messages ' || m.id, 'a branch', m.branch::text from m where not exists (select from b where b.branch = m.branch)
union all
select 'branch that does not lead to the parent', 'messages ' || m.id, 'a fork of branch ' || p.branch || ' at ' || p.depth,
  'branch ' || m.branch || ', chain ' || b.chain::text || ' at ' || b.chain_depths::text
from m join m p on p.id = m.parent_id join b on b.branch = m.branch
where m.branch <> p.branch
  and (b.chain[cardinality(b.chain) - 1] is distinct from p.branch or b.chain_depths[cardinality(b.chain) - 1] is distinct from p.depth)
union all
select 'branch with a wrong tip', 'branches ' || b.branch, coalesce(max(m.depth)::text, 'no branch'), b.tip_depth::text
from b left join m on m.branch = b.branch group by b.branch, b.tip_depth having b.tip_depth is distinct from max(m.depth);

-- name: check_texts(session_uid)
-- What a message says is what its segments say; what its path counts is what is on it.
with live as (
  select message_id from actual_turns where session_uid = :session_uid::uuid and state = 'running'
), m as (
  select * from actual_messages where session_uid = :session_uid::uuid and id not in (select message_id from live)
), said as (
  select message_id, string_agg(text, '' order by position) as text
  from actual_segments where session_uid = :session_uid::uuid and kind = 'text' group by message_id
), called as (
  select message_id, count(*) as calls from actual_calls where session_uid = :session_uid::uuid and state = 'recorded' group by message_id
), told as (
  select message_id, count(*) as words from actual_steering where session_uid = :session_uid::uuid and status = 'delivered' group by message_id
), own as (
  select m.id, m.parent_id, m.count_all, m.count_user, m.count_assistant,
    case when m.role = 'assistant' then (m.content <> '')::integer + coalesce(c.calls, 0) + coalesce(t.words, 0) else 1 end as all_rows,
    case when m.role = 'assistant' then coalesce(t.words, 0) else (m.role = 'user')::integer end as user_rows,
    case when m.role = 'assistant' then (m.content <> '')::integer else 0 end as assistant_rows
  from m left join called c on c.message_id = m.id left join told t on t.message_id = m.id
), counted as (
  select o.id, concat_ws('/', coalesce(p.count_all, 0) + o.all_rows, coalesce(p.count_user, 0) + o.user_rows,
      coalesce(p.count_assistant, 0) + o.assistant_rows) as expected, concat_ws('/', o.count_all, o.count_user, o.count_assistant) as found
  from own o left join actual_messages p on p.session_uid = :session_uid::uuid and p.id = o.parent_id
)
select 'content that is not the text of its segments' as what, 'messages ' || m.id as row, coalesce(s.text, '') as expected, m.content as found
from m left join said s on s.message_id = m.id where m.role = 'assistant' and m.content <> coalesce(s.text, '')
union all
select 'unsettled message without a turn that runs', 'messages ' || m.id, 'settled', 'unsettled' from m where not m.settled
union all
select 'wrong counts', 'messages ' || id, expected, found from counted where expected <> found
union all
select 'gap in what the model was given', 'model_messages ' || message_id, count(*) || ' from 0 on', min(position) || ' to ' || max(position)
from actual_model_messages where session_uid = :session_uid::uuid group by message_id having min(position) <> 0 or max(position) <> count(*) - 1
union all
select 'user message that the model was not given', 'model_messages ' || m.id, 'a request', 'none'
from m where m.role = 'user' and not exists (
  select from actual_model_messages r where r.session_uid = m.session_uid and r.message_id = m.id)
union all
select 'place of calls without calls', 'segments ' || s.message_id || '/' || s.position, 'calls', 'none'
from actual_segments s where s.session_uid = :session_uid::uuid and s.kind = 'tool_group' and s.message_id not in (select message_id from live)
  and not exists (
    select from actual_calls c where c.session_uid = s.session_uid and c.message_id = s.message_id and c.segment = s.position);

-- name: check_calls(session_uid)
-- Open calls are waited for, what is pending waits for open calls, and the model is told of each result.
with live as (
  select turn_id from actual_turns where session_uid = :session_uid::uuid and state = 'running'
), c as (
  select * from actual_calls where session_uid = :session_uid::uuid
), b as (
  select * from actual_host_batches where session_uid = :session_uid::uuid and state = 'open'
), parts as (
  select r.message_id, r.position, r.kind, r.turn_id, p.value ->> 'tool_call_id' as call_id, p.value ->> 'part_kind' as part
  from actual_model_messages r cross join lateral json_array_elements(r.body -> 'parts') p
  where r.session_uid = :session_uid::uuid and p.value ->> 'part_kind' in ('tool-call', 'tool-return', 'retry-prompt')
), unanswered as (
  select a.* from parts a where a.part = 'tool-call' and exists (
    select from actual_model_messages n where n.session_uid = :session_uid::uuid and n.message_id = a.message_id and n.position = a.position + 1)
  and not exists (
    select from parts r where r.part <> 'tool-call' and r.call_id = a.call_id and r.message_id = a.message_id and r.position = a.position + 1)
)
select 'open call with nothing pending' as what, 'calls ' || c.call_id as row, 'a pending host action' as expected, 'none' as found
from c where c.state = 'open' and c.turn_id not in (select turn_id from live)
  and not exists (select from b where b.turn_id = c.turn_id and b.step = c.step)
union all
select 'pending action whose call has a result', 'host_batches ' || b.turn_id || '/' || b.step, 'an open call', 'recorded calls only'
from b where not exists (select from c where c.turn_id = b.turn_id and c.step = b.step and c.state = 'open' and c.category = 'host')
union all
select 'call without a place', 'calls ' || c.call_id, 'segment ' || c.segment, 'none'
from c where not exists (
  select from actual_segments s where s.session_uid = c.session_uid and s.message_id = c.message_id and s.position = c.segment and s.kind = 'tool_group')
  and c.turn_id not in (select turn_id from live)
union all
select 'call of the model that is not there', 'calls ' || a.call_id, 'a call', 'none'
from parts a where a.part = 'tool-call' and not exists (select from c where c.call_id = a.call_id) and a.turn_id not in (select turn_id from live)
union all
select 'missing result', 'model_messages ' || u.message_id || '/' || u.position + 1, 'the result of ' || u.call_id, 'none' from unanswered u;

-- name: check_turns(session_uid)
-- Turns and steering hang on messages that are there, and a turn says how it ended.
select 'turn without its message' as what, 'turns ' || t.turn_id as row, 'message ' || t.message_id as expected, 'none' as found
from actual_turns t where t.session_uid = :session_uid::uuid
  and not exists (select from actual_messages m where m.session_uid = t.session_uid and m.id = t.message_id)
union all
select 'turn without its user''s message', 'turns ' || t.turn_id, 'message ' || t.user_message_id, 'none'
from actual_turns t where t.session_uid = :session_uid::uuid and t.user_message_id is not null
  and not exists (select from actual_messages m where m.session_uid = t.session_uid and m.id = t.user_message_id)
union all
select 'message without its turn', 'messages ' || m.id, 'turn ' || m.turn_id, 'none'
from actual_messages m where m.session_uid = :session_uid::uuid and m.turn_id is not null
  and not exists (select from actual_turns t where t.session_uid = m.session_uid and t.turn_id = m.turn_id)
union all
select 'steering without its message', 'steering ' || g.id, 'message ' || g.message_id, 'none'
from actual_steering g where g.session_uid = :session_uid::uuid and g.message_id is not null
  and not exists (select from actual_messages m where m.session_uid = g.session_uid and m.id = g.message_id)
union all
select 'wrong end', 'turns ' || t.turn_id, t.content, t.final ->> 'content'
from actual_turns t where t.session_uid = :session_uid::uuid and t.final is not null and t.content <> t.final ->> 'content';
