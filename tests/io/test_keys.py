"""`outlast keys`, on a real database."""

import asyncio
import getpass
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from typer.testing import CliRunner, Result

from activities.db.api_keys import ApiKeys
from activities.db.pool import Database
from cli.main import app
from settings import DatabaseSettings

RUNNER = CliRunner()


class Keys:
    """The command, and what it left in the database."""

    def __init__(self, url: str, conn: asyncpg.Connection) -> None:
        self.url = url
        self.conn = conn

    async def run(self, *arguments: str, **env: str) -> Result:
        known = {"OUTLAST_DATABASE__URL": self.url, "OUTLAST_ACCESS__MODE": "key", **env}
        return await asyncio.to_thread(RUNNER.invoke, app, ["keys", *arguments], env=known)

    async def make(self, *arguments: str) -> str:
        made = await self.run("create", *arguments)
        assert made.exit_code == 0, made.output
        (text,) = made.stdout.split()
        return text

    async def listed(self, *arguments: str) -> list[dict[str, Any]]:
        shown = await self.run("list", "--json", *arguments)
        return [json.loads(line) for line in shown.stdout.splitlines()]


@pytest.fixture
async def keys(database_url: str) -> Any:
    conn = await asyncpg.connect(database_url)
    yield Keys(database_url, conn)
    await conn.close()


async def test_s27_a_key_is_shown_once_and_kept_as_a_hash(keys: Keys) -> None:
    made = await keys.run("create", "Jürgen", "--tenant", "acme", "--role", "service", "--role", "admin", "--days", "1.5")
    assert made.exit_code == 0
    text, key_id = made.stdout.strip(), made.stdout[4:16]
    assert text.startswith(f"olk_{key_id}_") and len(text) == 60 and text not in made.stderr and key_id in made.stderr
    row = await keys.conn.fetchrow("select * from api_keys")
    assert row is not None and row["tenant"] == "acme" and row["principal"] == "Jürgen" and row["roles"] == ["admin", "service"]
    assert row["expires_at"] - row["created_at"] == timedelta(days=1.5)
    everything = [str(dict(line)) for table in ("api_keys", "audit") for line in await keys.conn.fetch(f"select * from {table}")]
    assert len(everything) == 2 and not any(text[17:] in line for line in everything)
    database = await Database.open(DatabaseSettings(url=keys.url))
    found = await ApiKeys(database).find(text, datetime.now(UTC))
    assert found is not None and found.key_id == key_id
    assert await ApiKeys(database).find(text, datetime.now(UTC) + timedelta(days=2)) is None
    await database.close()


async def test_s28_keys_are_listed_with_what_became_of_them(keys: Keys) -> None:
    ann, bob = await keys.make("ann"), await keys.make("bob", "--tenant", "acme", "--role", "admin")
    await keys.conn.execute("update api_keys set last_used_at = now() where principal = 'ann'")
    await keys.conn.execute("update api_keys set created_at = now() - interval '2 hours', expires_at = now() where principal = 'bob'")
    assert (await keys.run("revoke", ann)).stdout == f"revoked {ann[4:16]}\n"
    first, second = await keys.listed()
    assert (first["principal"], first["state"], first["roles"], first["expires_at"]) == ("bob", "expired", "admin", first["expires_at"])
    assert (second["principal"], second["state"], second["roles"], second["expires_at"]) == ("ann", "revoked", "-", "never")
    assert first["last_used_at"] == "never" != second["last_used_at"]
    assert [line["key_id"] for line in await keys.listed("--tenant", "acme")] == [bob[4:16]]
    table = (await keys.run("list")).stdout.splitlines()
    assert table[0].split() == list(second) and len(table) == 3
    assert ann[17:] not in str(table)


async def test_s27_making_and_revoking_leaves_audit_rows(keys: Keys) -> None:
    text = await keys.make("ann", "--role", "service")
    assert (await keys.run("revoke", text[4:16])).exit_code == 0
    rows = await keys.conn.fetch("select * from audit order by at")
    assert [(row["action"], row["target"], row["tenant"]) for row in rows] == [
        ("key_create", text[4:16], "default"),
        ("key_revoke", text[4:16], "default"),
    ]
    assert {row["principal"] for row in rows} == {f"operator:{getpass.getuser()}"}
    assert json.loads(rows[0]["facts"]) == {"principal": "ann", "roles": ["service"], "expires_at": None}


async def test_s27_what_does_not_fit_makes_nothing(keys: Keys) -> None:
    text = await keys.make("ann")
    await keys.run("revoke", text)
    for arguments, words in (
        (("create", " ann"), "begins or ends with a space"),
        (("create", "ann", "--tenant", "x" * 256), "the tenant has over 255 bytes"),
        (("create", "ann", "--role", "root"), "no role 'root'"),
        (("revoke", "nonsense"), "not the id of a key"),
        (("revoke", "0" * 12), "no key 000000000000 that could be revoked"),
        (("revoke", text), "could be revoked"),
    ):
        result = await keys.run(*arguments)
        assert result.exit_code != 0 and words in str(result.exception), result.output
    for number in ("1e300", "0", "-1", "nan", "inf", "x"):
        assert (await keys.run("create", "ann", "--days", number)).exit_code == 2, number
    assert await keys.conn.fetchval("select count(*) from api_keys") == 1
    assert "mode of these settings is `local`" in (await keys.run("create", "ann", OUTLAST_ACCESS__MODE="local")).stderr
