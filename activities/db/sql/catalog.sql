-- name: version_table()^
-- Where the schema's version is kept and whether the current role may read it; no row: no schema.
select n.nspname as home, has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select') as readable
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where c.relname = 'outlast_schema' and c.relkind = 'r'
order by n.nspname = any (current_schemas(false)) desc, n.nspname
limit 1;

-- name: schema_version()$
-- The revision that the schema is at.
select version_num from outlast_schema;

-- name: needed_privileges()
-- What api and worker need, one row a privilege: its name for people, whether the current role holds it, and how it is granted.
-- They read the version only; the ledger and the prompts are appended to and never changed.
with home as (
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
  format('grant usage on schema %I', nspname) as granting
from home
union all
select
  format('%s on %s', p.privilege, c.relname),
  has_table_privilege(c.oid, p.privilege),
  format('grant %s on %I.%I', p.privilege, home.nspname, c.relname)
from home
join pg_class c on c.relnamespace = home.oid and c.relkind = 'r'
cross join unnest(array['select', 'insert', 'update', 'delete']) as p (privilege)
where p.privilege = 'select'
  or (c.relname in ('usage_ledger', 'prompt_snapshots') and p.privilege = 'insert')
  or c.relname not in ('outlast_schema', 'usage_ledger', 'prompt_snapshots')
order by what;

-- name: quoted(name)$
-- A name as an identifier.
select quote_ident(:name);

-- name: create_database_statement(name)$
-- How a database is made. template0, because a busy or differently encoded template1 would be in the way.
select format('create database %I encoding ''UTF8'' template template0', :name::text);

-- name: lock_upgrades(lock)$
-- Waits until no other upgrade of this database runs, and keeps others waiting until this connection closes.
select pg_advisory_lock(:lock)::text;
