-- name: needed_privileges()
-- What api and worker need and no more, one row a privilege: its name for people, whether the current role holds it, how it is
-- granted, and how what was granted before on the same thing is taken back.
-- Rows that hang on others go with them by the rights of the tables' owner, hence the few deletes.
with needs (relation, privileges, updated) as (values
  ('api_keys', 'select, insert', 'last_used_at, revoked_at'),
  ('audit', 'insert', ''),
  ('branches', 'select, insert', 'tip_depth'),
  ('calls', 'select, insert', 'deadline_at, duration_ms, model_text, outcome, output, recorded_at, state, status'),
  ('erased_objects', 'select, insert, delete', ''),
  ('erasures', 'select, insert', 'part_of, payloads, rows, verified_at, workflow_runs'),
  ('events', 'select, insert, delete', ''),
  ('host_batches', 'select, insert', 'state'),
  ('idempotency_keys', 'select, insert, delete', 'answer, session_uid, status'),
  ('live_deltas', 'select, insert, delete', ''),
  ('messages', 'select, insert', 'change, content, count_all, count_assistant, count_user, error, model, prompt, said_at, settled, updated_at, usage'),
  ('model_messages', 'select, insert, delete', ''),
  ('outlast_schema', 'select', ''),
  ('payloads', 'select, insert, delete', ''),
  ('prompt_snapshots', 'select, insert', ''),
  ('segments', 'select, insert, delete', ''),
  ('sessions', 'select, insert, delete', 'active_leaf_id, cursor, events_from, expires_at, feed, host_context, host_context_at, message_count, owner, profile, revision, subject, title, turn_number, updated_at'),
  ('steering', 'select, insert', 'before_segment, change, delivered_at, message_id, status, turn_id'),
  ('step_progress', 'select, insert', 'announced, failures, model_index, seconds'),
  ('steps', 'select, insert', 'result'),
  ('transcript', 'select', ''),
  ('turns', 'select, insert', 'attempt, content, ended_at, error, final, first_text_at, model, run, started_at, state, steps, usage'),
  ('usage_ledger', 'select, insert', '')
), home as (
  select n.oid, n.nspname
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  where c.relname = 'outlast_schema' and c.relkind = 'r'
  order by n.nspname = any (current_schemas(false)) desc, n.nspname
  limit 1
)
select
  format('usage on schema %s', nspname) as what,
  has_schema_privilege(oid, 'usage') as held,
  format('grant usage on schema %I', nspname) as granting,
  format('revoke usage on schema %I', nspname) as revoking
from home
union all
select
  format('%s on %s', p.privilege, needs.relation),
  has_table_privilege(c.oid, p.privilege),
  format('grant %s on %I.%I', p.privilege, home.nspname, needs.relation),
  format('revoke all on %I.%I', home.nspname, needs.relation)
from home
cross join needs
join pg_class c on c.relnamespace = home.oid and c.relname = needs.relation
cross join string_to_table(needs.privileges, ', ') as p (privilege)
union all
select
  format('update on %s', needs.relation),
  bool_and(has_column_privilege(c.oid, a.attnum, 'update')),
  format('grant update (%s) on %I.%I', string_agg(quote_ident(a.attname), ', '), home.nspname, needs.relation),
  format('revoke all on %I.%I', home.nspname, needs.relation)
from home
cross join needs
join pg_class c on c.relnamespace = home.oid and c.relname = needs.relation
join pg_attribute a on a.attrelid = c.oid and a.attname = any (string_to_array(needs.updated, ', ')) and not a.attisdropped
group by home.nspname, needs.relation
order by what;
