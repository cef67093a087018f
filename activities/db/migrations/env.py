"""Alembic's entry point: runs on the connection, and in the transaction, that `activities.db.migrate` hands over."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], version_table="outlast_schema")
with context.begin_transaction():
    context.run_migrations()
