-- name: message_place(session_uid, message_id)^
-- Where a message stands in the tree, and what a child of it must know.
select m.id, m.branch, m.depth, m.count_all, m.count_user, m.count_assistant, b.tip_depth, b.chain, b.chain_depths,
  (select max(branch) from branches where session_uid = m.session_uid) as newest_branch
from messages m
join branches b on b.session_uid = m.session_uid and b.branch = m.branch
where m.session_uid = :session_uid and m.id = :message_id;

-- name: ids_taken(session_uid, message_id, turn_id)^
-- Whether a message id or a turn id is in use.
select
  exists (select from messages where session_uid = :session_uid and id = :message_id) as message,
  (select digest from messages where session_uid = :session_uid and id = :message_id) as digest,
  exists (select from turns where session_uid = :session_uid and turn_id = :turn_id) as turn,
  exists (select from messages where session_uid = :session_uid and parent_id is null) as rooted;

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
  digest, change, created_at, updated_at)
values (:session_uid, :id, :parent_id, :role, :content, :branch, :depth, :count_all, :count_user, :count_assistant, :turn_id, :profile,
  :digest, :change, :at, :at);

-- name: touch_message(session_uid, id, change, at)!
-- Something of the message changed: readers of the feed see it again.
update messages set change = :change, updated_at = greatest(updated_at, :at) where session_uid = :session_uid and id = :id;

-- name: extend_message(session_uid, id, content, model, usage, error, prompt, change, at)!
-- A step's text, model, usage and error on its assistant message. Usage is of the whole message.
update messages set content = content || :content, model = coalesce(:model, model), usage = :usage::json, error = :error::json,
  prompt = coalesce(:prompt::json, prompt), change = :change, updated_at = greatest(updated_at, :at)
where session_uid = :session_uid and id = :id;

-- name: recount_message(session_uid, id)!
-- How many transcript rows the path has with this assistant message: its finished calls, the steering it was given, and its text if it has any.
update messages m set
  count_all = p.count_all + (m.content <> '')::integer + (
    select count(*) from calls c where c.session_uid = m.session_uid and c.message_id = m.id and c.state = 'recorded'
  ) + (select count(*) from steering g where g.session_uid = m.session_uid and g.message_id = m.id),
  count_user = p.count_user + (select count(*) from steering g where g.session_uid = m.session_uid and g.message_id = m.id),
  count_assistant = p.count_assistant + (m.content <> '')::integer
from messages p
where m.session_uid = :session_uid and m.id = :id and p.session_uid = m.session_uid and p.id = m.parent_id;

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

-- name: rewrite_content(session_uid, message_id)!
-- A message's plain text from its segments.
update messages m set content = coalesce((
  select string_agg(text, '' order by position) from segments s
  where s.session_uid = m.session_uid and s.message_id = m.id and s.kind = 'text'), '')
where m.session_uid = :session_uid and m.id = :message_id;

-- name: display_message(session_uid, message_id)^
-- One message as it is shown, with its segments and the calls of its tool groups.
select m.id, m.parent_id, m.role, m.content, m.created_at, m.updated_at, m.turn_id, m.profile, m.model, m.usage, m.error,
  (select coalesce(json_agg(json_build_object('position', s.position, 'kind', s.kind, 'text', s.text, 'data', s.data) order by s.position), '[]')
    from segments s where s.session_uid = m.session_uid and s.message_id = m.id) as segments,
  (select coalesce(json_agg(json_build_object('segment', c.segment, 'id', c.call_id, 'name', c.tool_name, 'input', c.arguments,
      'output', c.output, 'outcome', c.outcome, 'status', c.status, 'state', c.state) order by c.segment, c.position), '[]')
    from calls c where c.session_uid = m.session_uid and c.message_id = m.id) as calls
from messages m
where m.session_uid = :session_uid and m.id = :message_id;

-- name: model_messages_of(session_uid, message_id)
-- One message of the tree as the model saw it.
select body from model_messages where session_uid = :session_uid and message_id = :message_id order by position;

-- name: set_message_error(session_uid, id, error, change, at)!
-- A turn ended with an error outside its step.
update messages set error = :error::json, change = :change, updated_at = greatest(updated_at, :at)
where session_uid = :session_uid and id = :id;
