"""The initial schema."""

from activities.db.migrations import run_file

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Builds everything that schema.sql describes."""
    run_file("0001_initial.sql")
