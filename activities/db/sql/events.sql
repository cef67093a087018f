-- name: events_after(session_uid, seq, count, bytes)
-- The durable events that follow a number: so many, or as many as are in so many stored bytes and the one that goes over.
select seq, turn_id, type, data::text as data, at, size
from (
  select seq, turn_id, type, data, at, pg_column_size(data) as size, sum(pg_column_size(data)) over (order by seq) as total
  from (
    select seq, turn_id, type, data, at from events where session_uid = :session_uid and seq > :seq order by seq limit :count
  ) as next
) as page
where total - size < :bytes
order by seq;

-- name: stored_text(session_uid, message_ids, segments, offsets, lengths)
-- Characters that were streamed, cut out of the segments that keep them, in the order asked for.
select w.ordinal, coalesce(substr(s.text, w.start + 1, w.length), '') as text
from unnest(
  cast(:message_ids as text[]), cast(:segments as integer[]), cast(:offsets as integer[]), cast(:lengths as integer[])
) with ordinality as w (message_id, segment, start, length, ordinal)
left join segments s on s.session_uid = :session_uid and s.message_id = w.message_id and s.position = w.segment
order by w.ordinal;

-- name: live_text_after(session_uid, after_seq, position)
-- The deltas of the live step that a reader hasn't got yet.
select position, turn_id, segment, start_offset, kind, text
from live_deltas
where session_uid = :session_uid and after_seq = :after_seq and position + char_length(text) > :position
order by position;

-- name: turn_begins(session_uid, turn_id, attempt)^
-- The number of the first event of a turn's newest attempt, null if the turn, or the attempt asked for, has not started; that of the
-- word about its refusal, if the rows refused it lately; that of the session's newest event; and whether the session's rows have gone.
select
  (select max(e.seq)
    from turns t
    join events e on e.session_uid = t.session_uid and e.turn_id = t.turn_id and e.type = 'turn.started'
    where t.session_uid = :session_uid and t.turn_id = :turn_id and t.attempt >= :attempt) as begins,
  (select max(e.seq)
    from sessions s
    join events e on e.session_uid = s.session_uid and e.seq > s.cursor - 100
    where s.session_uid = :session_uid and e.type = 'input.refused' and e.data ->> 'refused_turn_id' = :turn_id) as refused,
  exists (
    select from turns t
    where t.session_uid = :session_uid and t.turn_id = :turn_id and t.attempt >= :attempt and t.ended_at is not null) as over,
  coalesce((select cursor from sessions where session_uid = :session_uid), 0) as ends,
  coalesce((select events_from from sessions where session_uid = :session_uid), 0) as events_from,
  exists (select from erasures where id = :session_uid) as erased;

-- name: said_lately(session_uid, type, data, at)$
-- Whether one of the session's newest events is of this type and says exactly this, at this time if one is given.
select exists (
  select from sessions s
  join events e on e.session_uid = s.session_uid and e.seq > s.cursor - 100
  where s.session_uid = :session_uid
    and e.type = :type
    and e.data::text = cast(:data as text)
    and e.at = coalesce(cast(:at as timestamptz), e.at)
);

-- name: events_from(session_uid)$
-- The number up to which a session's events are gone; null if the session is.
select events_from from sessions where session_uid = :session_uid;

-- name: session_owner(session_uid)^
-- Who owns a session now; no row if the session's are gone.
select owner from sessions where session_uid = :session_uid;
