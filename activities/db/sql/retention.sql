-- name: sessions_with_old_events(before, behind, count)
-- A page of sessions, each with whether its oldest event is older than a moment.
select s.session_uid, coalesce((
  select e.at < :before from events e where e.session_uid = s.session_uid order by e.seq limit 1), false) as old
from (select session_uid from sessions where session_uid > :behind order by session_uid limit :count) as s
order by s.session_uid;

-- name: forget_events(session_uid, before)!
-- Gives up a session's events that are older than a moment: as many as come before the first one that is younger, and before the turn that
-- was under way then, or still is. Readers are told from here on; a session that somebody writes to is left for the next time.
with s as (
  select session_uid from sessions where session_uid = :session_uid for update skip locked
), kept as (
  select s.session_uid, coalesce(
    (select min(e.seq) from events e where e.session_uid = s.session_uid and e.at >= :before),
    (select max(e.seq) + 1 from events e where e.session_uid = s.session_uid)) as seq
  from s
), turn as (
  select k.session_uid, k.seq, (
    select max(e.seq) from events e where e.session_uid = k.session_uid and e.type = 'turn.started' and e.seq <= k.seq) as began
  from kept k
), cut as (
  select t.session_uid, case when t.began is null or exists (
      select from events e
      where e.session_uid = t.session_uid and e.type = 'turn.completed' and e.seq > t.began and e.seq < t.seq)
    then t.seq else t.began end - 1 as seq
  from turn t
)
update sessions set events_from = greatest(events_from, cut.seq) from cut where sessions.session_uid = cut.session_uid;

-- name: remove_events(session_uid, count)$
-- Removes some of the events that were given up; answers how many.
with gone as (
  delete from events using (
    select e.seq from events e join sessions s using (session_uid)
    where e.session_uid = :session_uid and e.seq <= s.events_from order by e.seq limit :count) as old
  where events.session_uid = :session_uid and events.seq = old.seq
  returning events.seq
)
select count(*) from gone;
