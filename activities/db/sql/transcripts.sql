-- name: transcript_row(session_uid, leaf_id, speaker, ordinal)^
-- The row that `ordinal` counts to, from 0 or (negative) from the end, over the rows of `speaker` on the path of a leaf.
-- Nothing is walked: the counts say which link of the path's chain of branches holds the row (bisected), an index on them which message,
-- and within that message the rows are few. The leaf's own rows are counted as they are, since its turn may be live.
with recursive leaf as materialized (
  select l.id, l.branch, b.chain, b.chain_depths,
    case :speaker::text when 'user' then coalesce(p.count_user, 0) when 'assistant' then coalesce(p.count_assistant, 0)
      else coalesce(p.count_all, 0) end as before,
    (
      select count(*) from transcript t
      where t.session_uid = l.session_uid and t.message_id = l.id and (:speaker = 'all' or t.role = :speaker)
    ) as own
  from messages l
  join branches b on b.session_uid = l.session_uid and b.branch = l.branch
  left join messages p on p.session_uid = l.session_uid and p.id = l.parent_id
  where l.session_uid = :session_uid::uuid and l.id = :leaf_id::text
), wanted as materialized (
  select id, chain, chain_depths, before, own, case when :ordinal::bigint < 0 then before + own + :ordinal else :ordinal end as ordinal
  from leaf
), search as (
  -- link `low` of the chain ends before the row, link `high` does not
  select 0 as low, cardinality(chain) as high from wanted where ordinal >= 0 and ordinal < before
  union all
  select
    case when found.beyond then low else (low + high) / 2 end,
    case when found.beyond then (low + high) / 2 else high end
  from search s
  cross join wanted w
  cross join lateral (
    select w.ordinal < case :speaker when 'user' then m.count_user when 'assistant' then m.count_assistant else m.count_all end as beyond
    from messages m
    where m.session_uid = :session_uid and m.branch = w.chain[(low + high) / 2] and m.depth = w.chain_depths[(low + high) / 2]
  ) found
  where high - low > 1
), holding as (
  select id as message_id, before from wanted where ordinal >= before and ordinal < before + own
  union all
  select m.id,
    case :speaker when 'user' then coalesce(p.count_user, 0) when 'assistant' then coalesce(p.count_assistant, 0)
      else coalesce(p.count_all, 0) end
  from search s
  cross join wanted w
  cross join lateral (
    (
      select id, parent_id from messages
      where :speaker = 'all' and session_uid = :session_uid and branch = w.chain[s.high] and count_all > w.ordinal
      order by count_all, depth limit 1
    )
    union all
    (
      select id, parent_id from messages
      where :speaker = 'user' and session_uid = :session_uid and branch = w.chain[s.high] and count_user > w.ordinal
      order by count_user, depth limit 1
    )
    union all
    (
      select id, parent_id from messages
      where :speaker = 'assistant' and session_uid = :session_uid and branch = w.chain[s.high] and count_assistant > w.ordinal
      order by count_assistant, depth limit 1
    )
  ) m
  left join messages p on p.session_uid = :session_uid and p.id = m.parent_id
  where s.high - s.low = 1
)
select w.ordinal as index, t.message_id, t.role, t.id, t.at, t.content, t.output, t.tool_name, t.outcome, t.status
from holding h
cross join wanted w
cross join lateral (
  select * from transcript
  where session_uid = :session_uid and message_id = h.message_id and (:speaker = 'all' or role = :speaker)
  order by place, kind, position
  offset w.ordinal - h.before limit 1
) t;

-- name: transcript_slice(session_uid, leaf_id, speaker, first, last)
-- The rows of `speaker` in the messages from depth `first` to `last` on the path of a leaf, in order: one index range for each branch.
-- `offset 0` keeps the order of the joins: a planner that knows nothing of the slice would rather read the whole session once.
select m.depth, t.message_id, t.role, t.id, t.at, t.content, t.output, t.tool_name, t.outcome, t.status
from messages leaf
join branches b on b.session_uid = leaf.session_uid and b.branch = leaf.branch
cross join lateral (
  select branch, least(deepest, leaf.depth, :last::integer) as deepest, lag(deepest) over (order by link) as forked
  from unnest(b.chain, b.chain_depths) with ordinality as link (branch, deepest, link)
) link
cross join lateral (
  select id, depth from messages
  where session_uid = leaf.session_uid and branch = link.branch and depth between :first::integer and link.deepest
  offset 0
) m
cross join lateral (
  select * from transcript
  where session_uid = leaf.session_uid and message_id = m.id and (:speaker::text = 'all' or role = :speaker)
  offset 0
) t
where leaf.session_uid = :session_uid::uuid and leaf.id = :leaf_id::text
  and link.deepest >= :first and coalesce(link.forked, -1) < :last
order by m.depth, t.place, t.kind, t.position;

-- name: transcript_between(session_uid, leaf_id, speaker, since, until, count)
-- The first `count` rows of `speaker` on the path of a leaf whose own time lies in a range, each with its ordinal. The two bounds on the
-- depth stand apart: a branch that is not in the leaf's chain has none, and `least` would pass over it.
with leaf as materialized (
  select l.depth, b.chain, b.chain_depths
  from messages l join branches b on b.session_uid = l.session_uid and b.branch = l.branch
  where l.session_uid = :session_uid::uuid and l.id = :leaf_id::text
)
select
  case :speaker::text when 'user' then coalesce(p.count_user, 0) when 'assistant' then coalesce(p.count_assistant, 0)
    else coalesce(p.count_all, 0) end + (
    select count(*) from transcript e
    where e.session_uid = :session_uid and e.message_id = t.message_id and (:speaker = 'all' or e.role = :speaker)
      and (e.place, e.kind, e.position) < (t.place, t.kind, t.position)
  ) as index,
  t.message_id, t.role, t.id, t.at, t.content, t.output, t.tool_name, t.outcome, t.status
from leaf
cross join transcript t
join messages m on m.session_uid = :session_uid and m.id = t.message_id
left join messages p on p.session_uid = :session_uid and p.id = m.parent_id
where t.session_uid = :session_uid
  and t.at >= coalesce(:since::timestamptz, '-infinity') and t.at <= coalesce(:until::timestamptz, 'infinity')
  and (:speaker = 'all' or t.role = :speaker)
  and m.depth <= leaf.depth and m.depth <= leaf.chain_depths[array_position(leaf.chain, m.branch)]
order by m.depth, t.place, t.kind, t.position
limit :count;

-- name: path_depth(session_uid, leaf_id)$
-- How deep a message lies; nothing if there is no such message.
select depth from messages where session_uid = :session_uid and id = :leaf_id;
