"""Goes through sessions one after the other and says what was found."""

from dataclasses import dataclass

from rich.console import Console
from temporalio.client import Client

from activities.db.migrate import ensure_usable
from activities.db.shadow import Shadow, owned
from activities.deriving.histories import Histories
from activities.deriving.verifying import Verdict, Verifier
from cli.endpoints import find_endpoints, temporal_client
from cli.listing import listed
from cli.options import note
from cli.progress import bar
from cli.rebuild import report
from cli.running import complain
from settings import Settings
from workflows.contracts.errors import SetupError
from workflows.contracts.naming import session_of
from workflows.model.session import SessionRef


@dataclass(frozen=True)
class Picked:
    """Which sessions: by id, all of a `tenant`, those of the workflows that a `query` finds, or `all`."""

    sessions: list[str]
    tenant: str | None = None
    query: str | None = None
    all: bool = False

    def check(self) -> None:
        """Raises SetupError for a choice that is none or several."""
        ways = [bool(self.sessions or self.tenant), self.query is not None, self.all]
        if sum(ways) != 1:
            raise SetupError("name sessions, --tenant, --query or --all: one of them")


async def run(settings: Settings, picked: Picked, *, rebuild: bool) -> bool:
    """Verifies or rebuilds, and prints what was found. True if nothing differs (any more). Raises SetupError, also where no session is meant,
    and ServiceUnavailable.
    """
    picked.check()
    found = find_endpoints(settings)
    await ensure_usable(found.settings.database)
    verdicts: list[Verdict] = []
    async with temporal_client(found) as client, Shadow.open(found.settings.database) as shadow:
        sessions = await _sessions(shadow, client, picked)
        if not sessions:
            raise SetupError(f"no session is meant by that: nothing was {'rebuilt' if rebuild else 'verified'}")
        verifier = Verifier(shadow, Histories(client), settings)
        with bar() as progress:
            task = progress.add_task("rebuilding" if rebuild else "verifying", total=len(sessions))
            for session in sessions:
                verdicts.append(await (verifier.rebuild(session) if rebuild else verifier.verify(session)))
                progress.advance(task)
    return _told(verdicts, rebuild=rebuild)


def _told(verdicts: list[Verdict], *, rebuild: bool) -> bool:
    for verdict in verdicts:
        for words in verdict.notes:
            note(f"{report.named(verdict)}: {words}")
    for words in report.problems(verdicts):
        complain(words)
    console = Console()
    if any(verdict.differences for verdict in verdicts):
        console = Console(width=max(console.width, report.WIDTH))
        console.print(report.differences(verdicts))
    console.print(report.summary(verdicts), markup=False, highlight=False, soft_wrap=True)
    bad = ("differs", "unreadable", "busy") if rebuild else ("differs", "unreadable")
    return not any(verdict.state in bad for verdict in verdicts)


async def _sessions(shadow: Shadow, client: Client, picked: Picked) -> list[SessionRef]:
    """The sessions that are meant. Raises SetupError for one that isn't there."""
    if picked.query is not None:
        return [ref for tenant, ids in (await _queried(client, picked.query)).items() for ref in await _of(shadow, tenant, sorted(ids))]
    tenant = picked.tenant or ("default" if picked.sessions else None)
    refs = await _of(shadow, tenant, picked.sessions or None)
    if missing := sorted(set(picked.sessions) - {ref.session_id for ref in refs}):
        raise SetupError(f"no session {missing[0]!r} in tenant {tenant!r}")
    return refs


async def _of(shadow: Shadow, tenant: str | None, ids: list[str] | None) -> list[SessionRef]:
    rows = [row async for row in owned.picked_sessions(shadow.conn, tenant=tenant, session_ids=ids)]
    return [SessionRef(tenant=row["tenant"], session_id=row["session_id"], session_uid=str(row["session_uid"])) for row in rows]


async def _queried(client: Client, query: str) -> dict[str, set[str]]:
    """Ids of sessions by tenant."""
    found: dict[str, set[str]] = {}
    for workflow in await listed(client, query, typed=query):
        if (named := session_of(workflow.id)) is not None:
            tenant, session_id = named
            found.setdefault(tenant, set()).add(session_id)
    return found


__all__ = ["Picked", "run"]
