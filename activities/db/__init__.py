"""Postgres: connections, statements, migrations, and the reads that the api serves."""
