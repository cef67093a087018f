"""`outlast keys`: the API keys of access mode `key`."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from cli.options import DataDir, check_parties, configured, help_alone, note, operator, say, warn
from settings import Settings
from workflows.contracts.errors import SetupError
from workflows.model.session import ROLES

app = typer.Typer(help="Make, list and revoke API keys.")
app.callback(invoke_without_command=True)(help_alone)


if TYPE_CHECKING:
    from activities.db.api_keys import ApiKey, ApiKeys

T = TypeVar("T")
COLUMNS = ("key_id", "tenant", "principal", "roles", "state", "created_at", "expires_at", "last_used_at")


@app.command()
def create(
    principal: Annotated[str, typer.Argument(help="Who the key is for.")],
    tenant: Annotated[str, typer.Option("--tenant", help="The principal's tenant.")] = "default",
    role: Annotated[list[str] | None, typer.Option("--role", help="admin or service. May be given twice.")] = None,
    days: Annotated[float | None, typer.Option("--days", help="Days until it expires. Without: it doesn't.", min=0.001, max=36_500)] = None,
    data_dir: DataDir = None,
) -> None:
    """Make a key and print it, once: only its hash is kept."""
    check_parties(principal=principal, tenant=tenant)
    if unknown := set(role or ()) - set(ROLES):
        raise SetupError(f"there is no role {min(unknown)!r}; there are {' and '.join(ROLES)}")
    settings, now = configured(data_dir), datetime.now(UTC)
    until = None if days is None else now + timedelta(days=days)
    roles = sorted(set(role or ()))
    text, key = _run(settings, lambda keys: keys.create(tenant, principal, roles, now=now, expires_at=until, by=operator()))
    say(text)
    note(f"key {key.key_id} of {principal} in tenant {tenant}, expires: {_time(until)}. Keep it now: it can't be shown again.")
    if settings.access.mode != "key":
        warn(f"the access mode of these settings is `{settings.access.mode}`: keys count in mode `key` only")


@app.command("list")
def list_keys(
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only of this tenant.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    data_dir: DataDir = None,
) -> None:
    """List keys, revoked and expired ones too. The keys themselves are not kept."""
    settings, now = configured(data_dir), datetime.now(UTC)
    lines = [_line(key, now) for key in _run(settings, lambda keys: keys.of_tenant(tenant))]
    if as_json:
        for line in lines:
            say(json.dumps(line, ensure_ascii=False))
        return
    table = [list(COLUMNS), *([str(line[name]) for name in COLUMNS] for line in lines)]
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    for row in table:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(help="The key's id, as `outlast keys list` shows it, or the key itself.")], data_dir: DataDir = None
) -> None:
    """End a key: it is refused from the next request on."""
    named = re.fullmatch(r"(?:olk_)?([0-9a-f]{12})(?:_.*)?", key)
    if named is None:
        raise SetupError("this is not the id of a key; `outlast keys list` shows them")
    settings = configured(data_dir)
    if not _run(settings, lambda keys: keys.revoke(named[1], now=datetime.now(UTC), by=operator())):
        raise SetupError(f"there is no key {named[1]} that could be revoked; `outlast keys list` shows them all")
    say(f"revoked {named[1]}")


def _line(key: "ApiKey", now: datetime) -> dict[str, str]:
    state = "revoked" if key.revoked_at else "usable" if key.usable(now) else "expired"
    times = {name: _time(getattr(key, name)) for name in COLUMNS if name.endswith("_at")}
    return {
        "key_id": key.key_id,
        "tenant": key.tenant,
        "principal": key.principal,
        "roles": ",".join(key.roles) or "-",
        "state": state,
        **times,
    }


def _time(at: datetime | None) -> str:
    return "never" if at is None else at.astimezone(UTC).isoformat(timespec="seconds")


def _run(settings: Settings, work: "Callable[[ApiKeys], Awaitable[T]]") -> T:
    """Does something with the table of keys. Raises OutlastError."""
    from activities.db.api_keys import ApiKeys
    from cli.endpoints import find_endpoints, usable_database

    async def connected() -> T:
        async with usable_database(find_endpoints(settings)) as database:
            return await work(ApiKeys(database))

    return asyncio.run(connected())
