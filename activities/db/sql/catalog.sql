-- name: version_table()^
-- Where the schema's version is kept, whose it is and whether the current role may read it; no row: no schema.
select n.nspname as home, pg_get_userbyid(c.relowner) as owner, has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select') as readable
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where c.relname = 'outlast_schema' and c.relkind = 'r'
order by n.nspname = any (current_schemas(false)) desc, n.nspname
limit 1;

-- name: schema_version()$
-- The revision that the schema is at.
select version_num from outlast_schema;

-- name: quoted(name)$
-- A name as an identifier.
select quote_ident(:name);

-- name: create_database_statement(name)$
-- How a database is made. template0, because a busy or differently encoded template1 would be in the way.
select format('create database %I encoding ''UTF8'' template template0', :name::text);

-- name: lock_upgrades(lock)$
-- Waits until no other upgrade of this database runs, and keeps others waiting until this connection closes.
select pg_advisory_lock(:lock)::text;
