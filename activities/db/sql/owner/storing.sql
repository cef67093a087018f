-- name: number_changes(session_uid, ids, steering)!
-- Rows of the feed that are not as readers had them get new numbers behind all others, so that readers see them again.
with changed as (
  select e.id, row_number() over (order by e.depth, e.branch) as place
  from messages e
  left join actual_messages f on f.session_uid = e.session_uid and f.id = e.id
  where e.session_uid = :session_uid::uuid and (f.id is null or e.id = any (:ids::text[]))
), told as (
  select e.id, row_number() over (order by e.number) as place
  from steering e
  left join actual_steering f on f.session_uid = e.session_uid and f.id = e.id
  where e.session_uid = :session_uid::uuid and (f.id is null or e.id = any (:steering::text[]))
), highest as (
  select greatest(s.feed, (select coalesce(max(change), 0) from actual_messages m where m.session_uid = s.session_uid),
    (select coalesce(max(change), 0) from actual_steering g where g.session_uid = s.session_uid)) as feed
  from actual_sessions s where s.session_uid = :session_uid::uuid
), m as (
  update messages e set change = h.feed + c.place from changed c, highest h where e.session_uid = :session_uid::uuid and e.id = c.id
), g as (
  update steering e set change = h.feed + (select count(*) from changed) + t.place from told t, highest h
  where e.session_uid = :session_uid::uuid and e.id = t.id
)
update sessions s set feed = h.feed + (select count(*) from changed) + (select count(*) from told)
from highest h where s.session_uid = :session_uid::uuid;

-- name: forget_details(session_uid)!
-- The rows that hang on a session's messages and turns go, to be written again: also those that hang on nothing any more.
with s as (
  delete from actual_segments where session_uid = :session_uid::uuid
), m as (
  delete from actual_model_messages where session_uid = :session_uid::uuid
), c as (
  delete from actual_calls where session_uid = :session_uid::uuid
), b as (
  delete from actual_host_batches where session_uid = :session_uid::uuid
), p as (
  delete from actual_step_progress where session_uid = :session_uid::uuid
)
delete from actual_steps where session_uid = :session_uid::uuid;

-- name: forget_frame(session_uid)!
-- Then the messages and turns themselves.
with g as (
  delete from actual_steering where session_uid = :session_uid::uuid
), t as (
  delete from actual_turns where session_uid = :session_uid::uuid
), m as (
  delete from actual_messages where session_uid = :session_uid::uuid
)
delete from actual_branches where session_uid = :session_uid::uuid;

-- name: store_derived_rows(session_uid)!
-- What hangs on the session's row, as it was derived.
with b as (
  insert into actual_branches select * from branches where session_uid = :session_uid::uuid
), m as (
  insert into actual_messages select * from messages where session_uid = :session_uid::uuid
), s as (
  insert into actual_segments select * from segments where session_uid = :session_uid::uuid
), r as (
  insert into actual_model_messages select * from model_messages where session_uid = :session_uid::uuid
), t as (
  insert into actual_turns select * from turns where session_uid = :session_uid::uuid
), p as (
  insert into actual_steps select * from steps where session_uid = :session_uid::uuid
), g as (
  insert into actual_steering select * from steering where session_uid = :session_uid::uuid
), h as (
  insert into actual_host_batches select * from host_batches where session_uid = :session_uid::uuid
)
insert into actual_calls select * from calls where session_uid = :session_uid::uuid;

-- name: store_derived_session(session_uid, note)$
-- The session's row as it was derived, and the note that wakes readers.
with s as (
  update actual_sessions a set owner = e.owner, profile = e.profile, subject = e.subject, title = e.title, active_leaf_id = e.active_leaf_id,
    revision = e.revision, turn_number = e.turn_number, message_count = e.message_count, feed = e.feed, host_context = e.host_context,
    host_context_at = e.host_context_at, created_at = e.created_at, updated_at = e.updated_at, expires_at = e.expires_at
  from sessions e where a.session_uid = :session_uid::uuid and e.session_uid = a.session_uid
)
select pg_notify('outlast', :note);

-- name: event_gap(session_uid)$
-- The last number below which events are missing, 0 if none is.
select coalesce(max(missing), 0) from (
  select s.number as missing from actual_sessions a
  cross join lateral generate_series(a.events_from + 1, a.cursor) as s (number)
  where a.session_uid = :session_uid::uuid
    and not exists (select from actual_events e where e.session_uid = a.session_uid and e.seq = s.number)
) as gaps;

-- name: close_event_gap(session_uid, gap)!
-- Where events are missing, those before go too, as a whole and never in the middle of a turn, and readers who come from before are told.
with last as (
  select greatest(:gap::bigint, coalesce((
    select max(seq) from actual_events e where e.session_uid = :session_uid::uuid and e.turn_id is not null and exists (
      select from actual_events b where b.session_uid = e.session_uid and b.turn_id = e.turn_id and b.seq < :gap::bigint)), 0)) as seq
), forgotten as (
  update actual_sessions s set events_from = greatest(s.events_from, l.seq), cursor = greatest(s.cursor, l.seq) from last l
  where s.session_uid = :session_uid::uuid
)
delete from actual_events e using last l where e.session_uid = :session_uid::uuid and e.seq <= l.seq;
