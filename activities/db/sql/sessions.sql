-- name: insert_session(session_uid, tenant, session_id, owner, profile, subject, created_at)!
-- The session's row, made by its first accepted input. Twice is once, and what was erased is not made again by who comes late.
insert into sessions (session_uid, tenant, session_id, owner, profile, subject, created_at, updated_at)
select :session_uid::uuid, :tenant, :session_id, :owner, :profile, :subject, :created_at::timestamptz, :created_at::timestamptz
where not exists (select from erasures where id = :session_uid::uuid)
on conflict do nothing;

-- name: take_session(session_uid)!
-- The session's row, locked. A statement of its own: what waits for a lock goes on with the snapshot that it began with, so that only
-- the next statement sees everything that the one before us committed.
select from sessions where session_uid = :session_uid for update;

-- name: lock_session(session_uid, turn_id)^
-- The session's row, which take_session locked, with what a writer wants to know first: the state of its turn and whether text is being streamed.
select
  s.session_uid, s.tenant, s.session_id, s.owner, s.profile, s.subject, s.active_leaf_id, s.revision, s.turn_number,
  s.message_count, s.cursor, s.feed, s.updated_at, s.title, s.expires_at, s.host_context is not null as host_context_known,
  t.state as turn_state, t.attempt as turn_attempt, t.run as turn_run, t.message_id as turn_message_id, t.usage as turn_usage, m.usage as message_usage,
  exists (select from live_deltas d where d.session_uid = s.session_uid) as streaming,
  exists (select from host_batches b where b.session_uid = s.session_uid and b.state = 'open')
    or exists (select from calls c where c.session_uid = s.session_uid and c.state = 'open') as waiting,
  exists (select from steering g where g.session_uid = s.session_uid and g.status = 'pending') as steered
from sessions s
left join turns t on t.session_uid = s.session_uid and t.turn_id = :turn_id
left join messages m on m.session_uid = t.session_uid and m.id = t.message_id
where s.session_uid = :session_uid;

-- name: store_session(session_uid, active_leaf_id, revision, turn_number, message_count, cursor, feed, updated_at, subject, profile, owner, title, expires_at)!
-- Where the session stands after a transaction.
update sessions set
  active_leaf_id = :active_leaf_id, revision = greatest(revision, :revision), turn_number = greatest(turn_number, :turn_number),
  message_count = :message_count, cursor = :cursor, feed = :feed, updated_at = greatest(updated_at, :updated_at), subject = :subject,
  profile = :profile, owner = :owner, title = :title, expires_at = :expires_at
where session_uid = :session_uid;

-- name: store_host_context(session_uid, host_context, at)!
-- The last host context, reused when a later message carries none.
update sessions set host_context = :host_context, host_context_at = :at where session_uid = :session_uid;

-- name: last_host_context(session_uid)^
-- The last host context and when it was captured.
select host_context, host_context_at from sessions where session_uid = :session_uid;

-- name: store_session_and_events(session_uid, active_leaf_id, revision, turn_number, message_count, cursor, feed, updated_at, subject, profile, owner, title, expires_at, seqs, turn_ids, types, datas, ats, note)$
-- Where the session stands after a transaction, its durable events in their order, and the note that wakes readers at the commit.
with stored as (
  update sessions set
    active_leaf_id = :active_leaf_id, revision = greatest(revision, :revision), turn_number = greatest(turn_number, :turn_number),
    message_count = :message_count, cursor = :cursor, feed = :feed, updated_at = greatest(updated_at, :updated_at), subject = :subject,
    profile = :profile, owner = :owner, title = :title, expires_at = :expires_at
  where session_uid = :session_uid::uuid
), appended as (
  insert into events (session_uid, seq, turn_id, type, data, at)
  select :session_uid::uuid, e.seq, e.turn_id, e.type, e.data::json, e.at
  from unnest(:seqs::bigint[], :turn_ids::text[], :types::text[], :datas::text[], :ats::timestamptz[]) as e (seq, turn_id, type, data, at)
)
select pg_notify('outlast', :note);

-- name: take_live_deltas(session_uid)
-- The text that was streamed since the last durable event, in order; the rows go.
with taken as (
  delete from live_deltas where session_uid = :session_uid
  returning after_seq, position, turn_id, segment, start_offset, kind, text
)
select * from taken order by after_seq, position;

-- name: stream_delta(session_uid, turn_id, attempt, run, segment, start_offset, kind, text, at)^
-- One piece of live text behind the newest durable event and what was streamed since, and the note that carries it to readers (a note may
-- have 7,999 bytes; a longer piece is announced without its text). A writer whose turn has ended, or whose step was begun again by another
-- one, writes nothing; its row is locked too, so that it is read as it is when the lock is got. Rows of the deltas need no second look: only
-- the run itself adds any.
with s as (
  select s.cursor from sessions s join turns t on t.session_uid = s.session_uid
  where s.session_uid = :session_uid and t.turn_id = :turn_id and t.attempt = :attempt and t.run = :run and t.state = 'running'
  for update of s, t
), piece as (
  insert into live_deltas (session_uid, after_seq, position, turn_id, segment, start_offset, kind, text)
  select :session_uid::uuid, s.cursor, coalesce((
      select d.position + char_length(d.text) from live_deltas d
      where d.session_uid = :session_uid::uuid and d.after_seq = s.cursor order by d.position desc limit 1), 0),
    :turn_id, :segment, :start_offset, :kind, :text
  from s
  returning *
)
select pg_notify('outlast', json_strip_nulls(json_build_object(
  's', session_uid, 'a', after_seq, 'p', position, 't', turn_id, 'g', segment, 'o', start_offset, 'k', kind,
  'x', case when octet_length(to_json(text)::text) < 7500 then text end, 'at', :at::text))::text)
from piece;

-- name: streamed_since(session_uid, after_seq)
-- How far each segment was streamed behind a durable event: text that is still live, and what became `text` events since.
select segment, max(ends)::integer as ends from (
  select segment, start_offset + char_length(text) as ends from live_deltas where session_uid = :session_uid::uuid
  union all
  select (part->>'segment')::integer, (part->>'offset')::integer + (part->>'length')::integer
  from events e cross join lateral json_array_elements(e.data->'parts') as part
  where e.session_uid = :session_uid::uuid and e.seq > :after_seq and e.type = 'text'
) as streamed
group by segment;

-- name: find_head(tenant, session_id)^
-- A session by its alias, for a workflow that starts where rows exist.
select s.session_uid, s.owner, s.profile, s.subject, s.active_leaf_id, s.revision, s.turn_number, s.expires_at,
  (select asked.parent_id from turns t
    join messages answer on answer.session_uid = t.session_uid and answer.id = t.message_id
    join messages asked on asked.session_uid = t.session_uid and asked.id = answer.parent_id
    where t.session_uid = s.session_uid order by t.number desc limit 1) as hung_under
from sessions s where s.tenant = :tenant and s.session_id = :session_id;

-- name: owner_of(session_uid)$
-- Whose session it is.
select owner from sessions where session_uid = :session_uid;

-- name: delete_session(session_uid, note)$
-- Removes a session and everything that hangs on it, and wakes its readers.
with gone as (delete from sessions where session_uid = :session_uid)
select pg_notify('outlast', :note);

-- name: have_reread(note)!
-- Readers of a session look at its rows again, its owner included, once this commits.
select pg_notify('outlast', :note);
