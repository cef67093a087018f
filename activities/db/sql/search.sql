-- name: search_messages(tenant, owner, words, before_at, before_uid, before_id, count, expires, held)
-- One page of an owner's messages and steering that have the words of a query, newest first; the cursor is the last row of the page before.
-- Each session's part of the index is looked at by itself (schema.sql, search_words): what others have said costs nothing.
with wanted as materialized (
  -- A minus sign before a word means "without it"; within one it joins, as other signs do.
  select websearch_to_tsquery('pg_catalog.simple', translate(regexp_replace(:words, '(\S)-+', '\1 ', 'g'), E'./\\@:+%&=?#~<>_', repeat(' ', 15))) as query
), hits as materialized (
  select s.session_id, s.session_uid, h.id, h.at, h.content
  from wanted w
  join sessions s on s.tenant = :tenant and s.owner = :owner and s.kind = 'conversation' and numnode(w.query) > 0
  cross join lateral (
    select m.id, m.created_at as at, m.content
    from messages m
    where m.settled and m.content <> '' and search_words(m.session_uid, m.content) @@ (w.query && ('''=' || s.session_uid || '''')::tsquery)
    union all
    select g.id, g.accepted_at, g.content
    from steering g
    where search_words(g.session_uid, g.content) @@ (w.query && ('''=' || s.session_uid || '''')::tsquery)
  ) h
  where not (
    cast(:expires as boolean) and s.expires_at is not null and s.expires_at <= now()
    and not exists (select from turns l where l.session_uid = s.session_uid and l.state = 'running')
    and not (cast(:held as boolean) and exists (select from host_batches b where b.session_uid = s.session_uid and b.state = 'open'))
  )
  and (
    cast(:before_at as timestamptz) is null
    or h.at < :before_at
    or (h.at = :before_at and (s.session_uid, h.id) > (cast(:before_uid as uuid), cast(:before_id as text)))
  )
  order by h.at desc, s.session_uid, h.id
  limit :count
)
select h.session_id, h.session_uid, h.id, h.at, substr(h.content, greatest(strpos(p.words, p.piece), 1), length(p.piece)) as snippet
from hits h cross join wanted w
cross join lateral (
  select plain_words(left(h.content, 100000)) as words,
    ts_headline('pg_catalog.simple', plain_words(left(h.content, 100000)), w.query, 'StartSel="", StopSel="", MaxWords=40, MinWords=20') as piece
) p
order by h.at desc, h.session_uid, h.id;
