-- name: session_metrics(session_uids)
-- What sessions did and took, counted from their rows, and tokens from the ledger, where every attempt counts. Times are whole milliseconds;
-- a percentile is a time that was really taken. A batch is waited for from its beginning until the last result of it that there is.
select
  w.session_uid,
  t.turns, t.errors::text as errors, t.first_text_p50, t.first_text_p95, t.turn_p50, t.turn_p95,
  (select count(*) from steps s where s.session_uid = w.session_uid) as steps,
  (select count(*) from calls c where c.session_uid = w.session_uid) as tool_calls,
  u.input_tokens, u.output_tokens, u.cost_usd,
  (
    select coalesce(sum(extract(epoch from b.answered_at - b.opened_at) * 1000), 0)::bigint
    from (
      select b.opened_at, greatest(b.opened_at, max(c.recorded_at)) as answered_at
      from host_batches b
      join calls c on c.session_uid = b.session_uid and c.message_id = b.message_id and c.turn_id = b.turn_id and c.step = b.step
      where b.session_uid = w.session_uid and c.category = 'host' and c.state = 'recorded'
      group by b.turn_id, b.step, b.opened_at
    ) b
  ) as host_wait_ms
from unnest(cast(:session_uids as uuid[])) as w (session_uid)
cross join lateral (
  select
    count(*) as turns,
    (
      select coalesce(json_object_agg(e.type, e.times), '{}')
      from (
        select f.error ->> 'type' as type, count(*) as times from turns f
        where f.session_uid = w.session_uid and f.error is not null group by 1 order by 1
      ) e
    ) as errors,
    percentile_disc(0.5) within group (order by t.first_text_ms) as first_text_p50,
    percentile_disc(0.95) within group (order by t.first_text_ms) as first_text_p95,
    percentile_disc(0.5) within group (order by t.turn_ms) as turn_p50,
    percentile_disc(0.95) within group (order by t.turn_ms) as turn_p95
  from (
    select
      (extract(epoch from first_text_at - case when first_text_at < started_at then accepted_at else started_at end) * 1000)::bigint
        as first_text_ms,
      (extract(epoch from ended_at - started_at) * 1000)::bigint as turn_ms
    from turns where session_uid = w.session_uid
  ) t
) t
cross join lateral (
  select coalesce(sum(input_tokens), 0)::bigint as input_tokens, coalesce(sum(output_tokens), 0)::bigint as output_tokens,
    sum(cost_usd) as cost_usd
  from usage_ledger where session_uid = w.session_uid
) u;
