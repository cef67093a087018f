"""The schema's migrations: `versions/` says in which order, `sql/` holds what each one does. They only go forward."""

from pathlib import Path
from typing import Any

from alembic import op
from sqlalchemy.util import await_only

SQL = Path(__file__).parent / "sql"


def run_file(name: str) -> None:
    """Runs `sql/<name>` in the migration's transaction.

    By the driver itself, which takes a file of many statements; as prepared statements, Alembic's own way, Postgres takes one at a time.
    """
    statements = (SQL / name).read_text(encoding="utf-8")
    driver: Any = op.get_bind().connection.driver_connection
    await_only(driver.execute(statements))


__all__ = ["SQL", "run_file"]
