-- name: message_place(session_uid, message_id)^
-- Where a message stands in the tree, and what a child of it must know.
select m.id, m.branch, m.depth, m.count_all, m.count_user, m.count_assistant, b.tip_depth, b.chain, b.chain_depths,
  (select max(branch) from branches where session_uid = m.session_uid) as newest_branch
from messages m
join branches b on b.session_uid = m.session_uid and b.branch = m.branch
where m.session_uid = :session_uid and m.id = :message_id;

-- name: place_message(session_uid, message_id, turn_id, parent_id)^
-- What a new user message meets: whether its ids are in use or a first message is there already; where its parent stands, and how far
-- the model's messages of the parent go.
select
  exists (select from messages where session_uid = :session_uid::uuid and id = :message_id::text) as message_taken,
  exists (select from turns where session_uid = :session_uid::uuid and turn_id = :turn_id::text) as turn_taken,
  exists (select from messages where session_uid = :session_uid::uuid and parent_id is null) as rooted,
  p.id, p.branch, p.depth, p.count_all, p.count_user, p.count_assistant, b.tip_depth, b.chain, b.chain_depths,
  (select max(branch) from branches where session_uid = p.session_uid) as newest_branch,
  coalesce(last.position + 1, 0) as next_model_message, last.turn_id as last_turn_id, last.attempt as last_attempt
from (select) as nothing
left join messages p on p.session_uid = :session_uid::uuid and p.id = :parent_id::text
left join branches b on b.session_uid = p.session_uid and b.branch = p.branch
left join lateral (
  select position, turn_id, attempt from model_messages where session_uid = p.session_uid and message_id = p.id
  order by position desc limit 1
) last on true;

-- name: insert_branch(session_uid, branch, tip_depth, chain, chain_depths)!
-- A new branch with the chain it hangs on.
insert into branches (session_uid, branch, tip_depth, chain, chain_depths)
values (:session_uid, :branch, :tip_depth, :chain, :chain_depths);

-- name: grow_branch(session_uid, branch, tip_depth)!
-- A branch got longer.
update branches set tip_depth = greatest(tip_depth, :tip_depth) where session_uid = :session_uid and branch = :branch;

-- name: insert_message(session_uid, id, parent_id, role, content, branch, depth, count_all, count_user, count_assistant, turn_id, profile, digest, change, at)!
-- A message of the tree.
insert into messages (session_uid, id, parent_id, role, content, branch, depth, count_all, count_user, count_assistant, turn_id, profile,
  digest, change, created_at, updated_at, said_at, settled)
values (:session_uid, :id, :parent_id, :role, :content, :branch, :depth, :count_all, :count_user, :count_assistant, :turn_id, :profile,
  :digest, :change, :at, :at, :at, :role <> 'assistant');

-- name: insert_exchange(session_uid, branch, depth, message_id, parent_id, content, attachments, digest, answer_id, count_all, count_user, count_assistant, turn_id, attempt, profile, change, at, body, library)!
-- A user's message with what is shown of its files, the empty answer under it, and what the model is given of the message. The branch
-- got longer by both.
with grown as (
  update branches set tip_depth = greatest(tip_depth, :depth::integer + 1)
  where session_uid = :session_uid::uuid and branch = :branch::integer
), exchange as (
  insert into messages (session_uid, id, parent_id, role, content, branch, depth, count_all, count_user, count_assistant, turn_id, profile,
    attachments, digest, change, created_at, updated_at, said_at, settled)
  select :session_uid::uuid, e.id, e.parent_id, e.role, e.content, :branch::integer, e.depth, :count_all::integer, :count_user::integer,
    :count_assistant::integer, :turn_id::text, :profile::text, e.attachments, e.digest, e.change, :at::timestamptz, :at::timestamptz,
    :at::timestamptz, e.role = 'user'
  from (values
    (:message_id::text, :parent_id::text, 'user', :content::text, :depth::integer, :attachments::json, :digest::text, :change::bigint),
    (:answer_id::text, :message_id::text, 'assistant', '', :depth::integer + 1, null, null, :change::bigint + 1)
  ) as e (id, parent_id, role, content, depth, attachments, digest, change)
)
insert into model_messages (session_uid, message_id, position, turn_id, attempt, step, kind, body, library)
values (:session_uid::uuid, :message_id::text, 0, :turn_id::text, :attempt, 0, 'request', :body::json, :library);

-- name: touch_message(session_uid, id, change, at)!
-- Something of the message changed: readers of the feed see it again.
update messages set change = :change, updated_at = greatest(updated_at, :at) where session_uid = :session_uid and id = :id;

-- name: settle_message(session_uid, id)^
-- How many transcript rows the path has with this assistant message: its finished calls, the steering it was given, and its text if it
-- has any. Answers the message as it is shown, with its segments and the calls of its tool groups.
update messages m set
  settled = true,
  count_all = coalesce(p.count_all, 0) + (m.content <> '')::integer + (
    select count(*) from calls c where c.session_uid = m.session_uid and c.message_id = m.id and c.state = 'recorded'
  ) + (select count(*) from steering g where g.session_uid = m.session_uid and g.message_id = m.id),
  count_user = coalesce(p.count_user, 0) + (select count(*) from steering g where g.session_uid = m.session_uid and g.message_id = m.id),
  count_assistant = coalesce(p.count_assistant, 0) + (m.content <> '')::integer
from messages itself
left join messages p on p.session_uid = itself.session_uid and p.id = itself.parent_id
where m.session_uid = :session_uid and m.id = :id and itself.session_uid = m.session_uid and itself.id = m.id
returning m.count_all - itself.count_all as more, m.count_user - itself.count_user as more_user,
  m.count_assistant - itself.count_assistant as more_assistant,
  exists (select from messages c where c.session_uid = m.session_uid and c.parent_id = m.id) as followed, m.id, m.parent_id, m.role, m.content, m.created_at, m.updated_at, m.turn_id, m.profile, m.model, m.usage, m.error, m.attachments,
  (select coalesce(json_agg(json_build_object('position', s.position, 'kind', s.kind, 'text', s.text, 'data', s.data::text)
      order by s.position), '[]')
    from segments s where s.session_uid = m.session_uid and s.message_id = m.id) as segments,
  (select coalesce(json_agg(json_build_object('segment', c.segment, 'call_id', c.call_id, 'tool_name', c.tool_name,
      'arguments', c.arguments::text, 'output', c.output::text, 'outcome', c.outcome, 'status', c.status) order by c.segment, c.position), '[]')
    from calls c where c.session_uid = m.session_uid and c.message_id = m.id) as calls;

-- name: shift_counts(session_uid, id, more, more_user, more_assistant)!
-- What is counted on a path up to a message changed: so did it for everything below it.
update messages d set count_all = d.count_all + :more, count_user = d.count_user + :more_user,
  count_assistant = d.count_assistant + :more_assistant
from messages m
join branches b on b.session_uid = m.session_uid and array_position(b.chain, m.branch) is not null
where m.session_uid = :session_uid and m.id = :id and d.session_uid = m.session_uid and d.branch = b.branch
  and case when b.branch = m.branch then d.depth > m.depth else b.chain_depths[array_position(b.chain, m.branch)] >= m.depth end;

-- name: insert_segments(session_uid, message_id, turn_id, attempt, step, positions, kinds, texts)!
-- A step's display segments.
insert into segments (session_uid, message_id, position, turn_id, attempt, step, kind, text)
select :session_uid::uuid, :message_id, s.position, :turn_id, :attempt, :step, s.kind, s.text
from unnest(:positions::integer[], :kinds::text[], :texts::text[]) as s (position, kind, text);

-- name: insert_model_messages(session_uid, message_id, turn_id, attempt, step, positions, kinds, bodies, library)!
-- What the model was given and what it answered.
insert into model_messages (session_uid, message_id, position, turn_id, attempt, step, kind, body, library)
select :session_uid::uuid, :message_id, m.position, :turn_id, :attempt, :step, m.kind, m.body::json, :library
from unnest(:positions::integer[], :kinds::text[], :bodies::text[]) as m (position, kind, body);

-- name: insert_step_rows(session_uid, message_id, turn_id, attempt, step, segments, kinds, texts, positions, roles, bodies, library)!
-- What a step leaves: its display segments, what the model was given and what it answered.
with shown as (
  insert into segments (session_uid, message_id, position, turn_id, attempt, step, kind, text)
  select :session_uid::uuid, :message_id::text, s.position, :turn_id::text, :attempt::integer, :step::integer, s.kind, s.text
  from unnest(:segments::integer[], :kinds::text[], :texts::text[]) as s (position, kind, text)
)
insert into model_messages (session_uid, message_id, position, turn_id, attempt, step, kind, body, library)
select :session_uid::uuid, :message_id::text, m.position, :turn_id::text, :attempt::integer, :step::integer, m.kind, m.body::json, :library
from unnest(:positions::integer[], :roles::text[], :bodies::text[]) as m (position, kind, body);

-- name: message_tail(session_uid, message_id)^
-- Where the next segment and the next model message of a message go, and whether its last response still wants its results.
select m.id, m.parent_id, m.content, m.usage, m.change,
  (select coalesce(max(position) + 1, 0) from segments where session_uid = m.session_uid and message_id = m.id)::integer as next_segment,
  (select coalesce(max(position) + 1, 0) from model_messages where session_uid = m.session_uid and message_id = m.id)::integer as next_model_message,
  last.kind as last_kind, last.turn_id as last_turn_id, last.attempt as last_attempt, last.step as last_step
from messages m
left join lateral (
  select kind, turn_id, attempt, step from model_messages where session_uid = m.session_uid and message_id = m.id
  order by position desc limit 1
) last on true
where m.session_uid = :session_uid and m.id = :message_id;

-- name: path_model_messages(session_uid, message_id)
-- The conversation as the model saw it, root to the named message. One index range per branch of its chain.
select mm.body
from messages leaf
join branches b on b.session_uid = leaf.session_uid and b.branch = leaf.branch
cross join lateral unnest(b.chain, b.chain_depths) as link (branch, deepest)
join messages m on m.session_uid = leaf.session_uid and m.branch = link.branch and m.depth <= least(link.deepest, leaf.depth)
join model_messages mm on mm.session_uid = m.session_uid and mm.message_id = m.id
where leaf.session_uid = :session_uid and leaf.id = :message_id
order by m.depth, mm.position;

-- name: drop_step_segments(session_uid, message_id, turn_id, step)
-- What a failed step had shown, taken back by a retry.
delete from segments where session_uid = :session_uid and message_id = :message_id and turn_id = :turn_id and step >= :step
returning position, kind, text;

-- name: drop_step_model_messages(session_uid, message_id, turn_id, step)!
-- What a failed step had kept for the model, taken back by a retry.
delete from model_messages
where session_uid = :session_uid and message_id = :message_id and turn_id = :turn_id and step >= :step;

-- name: rewrite_content(session_uid, message_id, at)!
-- A message's plain text from its segments, as they are since `at`.
update messages m set said_at = greatest(said_at, :at), content = coalesce((
  select string_agg(text, '' order by position) from segments s
  where s.session_uid = m.session_uid and s.message_id = m.id and s.kind = 'text'), '')
where m.session_uid = :session_uid and m.id = :message_id;

-- name: model_messages_of(session_uid, message_id)
-- One message of the tree as the model saw it.
select body from model_messages where session_uid = :session_uid and message_id = :message_id order by position;

-- name: set_message_error(session_uid, id, error, change, at)!
-- A turn ended with an error outside its step.
update messages set error = :error::json, change = :change, updated_at = greatest(updated_at, :at)
where session_uid = :session_uid and id = :id;

-- name: insert_cards(session_uid, message_id, positions, datas)!
-- The components of a host card.
insert into segments (session_uid, message_id, position, kind, data)
select :session_uid::uuid, :message_id, s.position, 'component', s.data::json
from unnest(:positions::integer[], :datas::text[]) as s (position, data);

-- name: digest_of(session_uid, message_id)^
-- What a message said, if its id is in use.
select digest from messages where session_uid = :session_uid and id = :message_id;
