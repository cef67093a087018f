-- name: seed_session(session_uid, leaf_id, revision, turn_number, owner, began_at)!
-- The session as it stood when the oldest retained run began. What an earlier run wrote last of title and host context is not known: what there is now
-- stands for it, unless it came later.
insert into sessions (session_uid, tenant, session_id, owner, kind, profile, subject, title, active_leaf_id, revision, turn_number, host_context,
  host_context_at, created_at, updated_at, expires_at, feed)
select session_uid, tenant, session_id, :owner, kind, profile, subject, title, :leaf_id, :revision, :turn_number,
  case when host_context_at <= :began_at then host_context end, case when host_context_at <= :began_at then host_context_at end,
  created_at, least(updated_at, :began_at), expires_at, feed
from actual_sessions where session_uid = :session_uid;

-- name: seed_messages(session_uid, made)!
-- Messages that no retained run made, and their branches up to there.
with kept as (
  insert into messages select * from actual_messages where session_uid = :session_uid::uuid and id <> all (:made::text[]) returning branch, depth
), counted as (
  update sessions set message_count = (select count(*) from kept) where session_uid = :session_uid::uuid
)
insert into branches (session_uid, branch, tip_depth, chain, chain_depths)
select b.session_uid, b.branch, max(k.depth), b.chain, b.chain_depths
from actual_branches b join kept k on k.branch = b.branch
where b.session_uid = :session_uid::uuid
group by b.session_uid, b.branch, b.chain, b.chain_depths;

-- name: seed_turns(session_uid, made)!
-- Turns that no retained run began, and their steps.
with steps_of as (
  insert into steps select * from actual_steps where session_uid = :session_uid::uuid and turn_id <> all (:made::text[])
)
insert into turns select * from actual_turns where session_uid = :session_uid::uuid and turn_id <> all (:made::text[]);

-- name: seed_texts(session_uid, made, asked_by, asked_step)!
-- What those turns showed and what the model was given. `asked_by` and `asked_step`: the response whose calls the host was asked for; its
-- results are not told yet.
with shown as (
  insert into segments
  select s.* from actual_segments s join messages m on m.session_uid = s.session_uid and m.id = s.message_id
  where s.session_uid = :session_uid::uuid and coalesce(s.turn_id, '') <> all (:made::text[])
)
insert into model_messages
select t.* from actual_model_messages t join messages m on m.session_uid = t.session_uid and m.id = t.message_id
where t.session_uid = :session_uid::uuid and coalesce(t.turn_id, '') <> all (:made::text[])
  and not (t.kind = 'request' and t.turn_id is not distinct from :asked_by::text and t.step is not distinct from :asked_step::integer and exists (
    select from actual_model_messages r where r.session_uid = t.session_uid and r.message_id = t.message_id and r.turn_id = t.turn_id
      and r.step = t.step and r.kind = 'response' and r.position < t.position));

-- name: seed_calls(session_uid, made, waiting, asked)!
-- Calls of those turns. The `waiting` ones had no result yet; of them the host was `asked` for some, whose deadlines count.
insert into calls (session_uid, call_id, message_id, segment, turn_id, attempt, step, position, tool_name, category, arguments, arguments_digest,
  options, token_id, state, outcome, status, output, model_text, duration_ms, requested_at, deadline_at, recorded_at)
select session_uid, call_id, message_id, segment, turn_id, attempt, step, position, tool_name, category, arguments, arguments_digest, options,
  token_id, case when w then 'open' else state end, case when not w then outcome end, case when not w then status end,
  case when not w then output end, case when not w then model_text end, case when not w then duration_ms end, requested_at,
  case when not w or call_id = any (:asked::text[]) then deadline_at end, case when not w then recorded_at end
from (select *, call_id = any (:waiting::text[]) as w from actual_calls where session_uid = :session_uid and turn_id <> all (:made::text[])) c;

-- name: seed_batches(session_uid, made, asked_by, asked_step)!
-- The host batches of those turns; one of them is open, if the host was asked for something.
insert into host_batches (session_uid, message_id, turn_id, step, handover, state, opened_at)
select session_uid, message_id, turn_id, step, handover,
  case when turn_id = :asked_by::text and step = :asked_step::integer then 'open' else 'closed' end, opened_at
from actual_host_batches where session_uid = :session_uid and turn_id <> all (:made::text[]);

-- name: seed_steering(session_uid, noted, made)!
-- Steering that came before; what a retained run's turn took waited then.
insert into steering (session_uid, id, number, content, profile, digest, status, own_turn_id, turn_id, message_id, before_segment, change,
  accepted_at, delivered_at)
select session_uid, id, number, content, profile, digest, case when later then 'pending' else status end, own_turn_id,
  case when not later then turn_id end, case when not later then message_id end, case when not later then before_segment end, change,
  accepted_at, case when not later then delivered_at end
from (select *, coalesce(turn_id = any (:made::text[]), false) as later from actual_steering where session_uid = :session_uid) g
where id <> all (:noted::text[]);

-- name: extended_messages(session_uid, made, also)
-- Messages from before that retained runs' turns went on with, or that are named.
select m.id from messages m
where m.session_uid = :session_uid and (m.id = any (:also::text[]) or exists (
  select from actual_turns t where t.session_uid = m.session_uid and t.message_id = m.id and t.turn_id = any (:made::text[])))
order by m.depth;

-- name: rewind_message(session_uid, id)!
-- A message that retained runs went on with, as the turns before them left it.
update messages m set
  content = coalesce((
    select string_agg(text, '' order by position) from segments s where s.session_uid = m.session_uid and s.message_id = m.id and s.kind = 'text'), ''),
  usage = (
    select case when count(*) > 0 then format(
      '{"input_tokens":%s,"output_tokens":%s,"total_tokens":%s,"requests":%s,"tool_calls":%s,"cost_usd":%s}',
      sum((usage ->> 'input_tokens')::bigint), sum((usage ->> 'output_tokens')::bigint), sum((usage ->> 'total_tokens')::bigint),
      sum((usage ->> 'requests')::bigint), sum((usage ->> 'tool_calls')::bigint),
      coalesce(to_json(sum((usage ->> 'cost_usd')::numeric)::text)::text, 'null'))::json end
    from turns t where t.session_uid = m.session_uid and t.message_id = m.id and t.usage is not null),
  model = (
    select model from turns t where t.session_uid = m.session_uid and t.message_id = m.id and t.model is not null order by number desc limit 1),
  error = (select error from turns t where t.session_uid = m.session_uid and t.message_id = m.id order by number desc limit 1),
  updated_at = greatest(created_at, (select max(ended_at) from turns t where t.session_uid = m.session_uid and t.message_id = m.id)),
  said_at = least(said_at, greatest(created_at, (select max(ended_at) from turns t where t.session_uid = m.session_uid and t.message_id = m.id)))
where m.session_uid = :session_uid and m.id = :id;
