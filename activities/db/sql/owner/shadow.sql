-- What only `outlast verify` and `outlast rebuild` run, on a connection of their own. There, after make_shadow, a table's name means an empty
-- temporary table, in which a session is derived again; what everybody else sees is `actual_<table>`.

-- name: make_shadow()!
-- Temporary tables that hide the real ones from this connection, and views that still show those. Each transaction begins with empty ones.
do $$
declare
  relation text;
begin
  -- Histories are read while the session's row is held; a process that vanished meanwhile is noticed by its connection.
  perform set_config('idle_in_transaction_session_timeout', '30min', false);
  -- A plan that was made while the temporary tables were empty would be kept while they grow.
  perform set_config('plan_cache_mode', 'force_custom_plan', false);
  foreach relation in array array['sessions', 'branches', 'messages', 'segments', 'model_messages', 'turns', 'steering', 'steps',
    'step_progress', 'host_batches', 'calls', 'events', 'live_deltas', 'usage_ledger', 'audit', 'prompt_snapshots']
  loop
    execute format('create temp view actual_%1$s as select * from %1$I', relation);
    execute format('create temp table %1$I (like %1$I including all) on commit delete rows', relation);
  end loop;
end $$;

-- name: lock_actual(session_uid)!
-- The session's real row: who writes to the session waits until this transaction is over.
select from actual_sessions where session_uid = :session_uid for update;

-- name: actual_session(session_uid)^
-- The session as its rows show it. `version` is another one after each write to the session.
select session_uid, tenant, session_id, cursor, turn_number, concat_ws('/', cursor, feed, revision, updated_at, title, owner) as version,
  exists (select from actual_live_deltas d where d.session_uid = s.session_uid) as streaming
from actual_sessions s where session_uid = :session_uid;

-- name: place_expiry(session_uid, expires_at)!
-- When the session expires, as an activity was told.
update sessions set expires_at = :expires_at where session_uid = :session_uid;

-- name: keep_underived(session_uid, library)!
-- What no history says stays as the rows have it: the numbers of the change feed and of steering, which readers hold on to, how often a step was
-- begun, what a step was answered, and requests in the words of another release of the library.
with m as (
  update messages e set change = f.change from actual_messages f
  where e.session_uid = :session_uid::uuid and f.session_uid = e.session_uid and f.id = e.id
), g as (
  update steering e set change = f.change from actual_steering f
  where e.session_uid = :session_uid::uuid and f.session_uid = e.session_uid and f.id = e.id
), t as (
  update turns e set run = f.run, triage = f.triage from actual_turns f
  where e.session_uid = :session_uid::uuid and f.session_uid = e.session_uid and f.turn_id = e.turn_id
), s as (
  update steps e set result = f.result from actual_steps f
  where e.session_uid = :session_uid::uuid and f.session_uid = e.session_uid and (f.turn_id, f.attempt, f.step) = (e.turn_id, e.attempt, e.step)
), x as (
  update model_messages e set library = f.library, body = case when e.kind = 'request' and f.library <> :library then f.body else e.body end
  from actual_model_messages f
  where e.session_uid = :session_uid::uuid and f.session_uid = e.session_uid and (f.message_id, f.position) = (e.message_id, e.position)
    and f.kind = e.kind
)
update sessions e set cursor = f.cursor, feed = f.feed, events_from = f.events_from, kind = f.kind, parent_uid = f.parent_uid
from actual_sessions f where e.session_uid = :session_uid::uuid and f.session_uid = e.session_uid;

-- name: keep_steering_numbers(session_uid)!
-- Steering keeps its number, which the order of what is shown hangs on, unless the order itself is another one. Negative for a moment, so that no
-- two rows meet.
with ranked as (
  select e.id, e.number, f.number as kept, row_number() over (order by e.number) as rank, row_number() over (order by f.number) as had
  from steering e join actual_steering f on f.session_uid = e.session_uid and f.id = e.id
  where e.session_uid = :session_uid::uuid
), highest as (
  select greatest(max(f.number), (select max(number) from steering)) as number from actual_steering f where f.session_uid = :session_uid::uuid
), numbered as (
  select e.id, case
    when r.id is not null then case when exists (select from ranked where rank <> had) then e.number else r.kept end
    when not exists (select from actual_steering f where f.session_uid = e.session_uid and f.number = e.number) then e.number
    else h.number + row_number() over (order by r.id is null, e.number) end as number
  from steering e cross join highest h left join ranked r on r.id = e.id
  where e.session_uid = :session_uid::uuid
)
update steering e set number = -n.number from numbered n where e.session_uid = :session_uid::uuid and e.id = n.id;

-- name: turn_numbers_back(session_uid)!
-- What keep_steering_numbers made negative.
update steering set number = -number where session_uid = :session_uid and number < 0;

-- name: comparing(relation, keys, left_out)^
-- The statement that compares a table's derived rows with the real ones of a session: each row that differs, by its key, whether it is derived and
-- whether it is there, and the values of its other columns, in the order of `columns`.
with shape as (
  select string_agg(format('e.%1$I::text', column_name), ', ' order by column_name) as derived,
    string_agg(format('f.%1$I::text', column_name), ', ' order by column_name) as had,
    array_agg(column_name order by column_name) as columns
  from unnest(:keys::text[] || :left_out::text[] || array['session_uid']) as skipped (name)
  right join (
    select attname::text as column_name from pg_attribute
    where attrelid = to_regclass('pg_temp.' || :relation) and attnum > 0 and not attisdropped
  ) as columns on columns.column_name = skipped.name
  where skipped.name is null
), keyed as (
  select string_agg(format('coalesce(e.%1$I, f.%1$I)::text', name), ', ') as key, string_agg(format('e.%1$I = f.%1$I', name), ' and ') as same
  from unnest(:keys::text[]) as name
)
select format('select array[%1$s] as key, e.session_uid is not null as derived, f.session_uid is not null as there, '
  'array[%2$s]::text[] as expected, array[%3$s]::text[] as found '
  'from (select * from %4$I where session_uid = $1) e full join (select * from actual_%4$s where session_uid = $1) f on %5$s '
  'where e.session_uid is null or f.session_uid is null or array[%2$s]::text[] is distinct from array[%3$s]::text[] order by 1 limit $2',
  key, derived, had, :relation::text, same) as statement, columns
from shape, keyed;
