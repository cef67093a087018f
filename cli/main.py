"""The `outlast` command. Every command imports what it needs when it runs, so that `--help` is quick."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from cli import erasing, keys
from cli.options import DataDir, ExportFormat, configured, or_version, overrides, say, warn
from cli.output import watch_stdout
from cli.rebuild import commands as rebuilding
from cli.running import INTERRUPTED, attempt, complain, failed, leave, run_until_stopped

app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, help="Assistant conversations that outlive processes."
)
app.callback(invoke_without_command=True)(or_version)
app.add_typer(keys.app, name="keys")
app.add_typer(erasing.payloads, name="payloads")


def main() -> None:
    """Runs the command line. The exit code is 0, 1 for what went wrong, 2 for a command line that doesn't fit, 130 for Ctrl-C, 141 if nobody
    reads stdout any more.
    """
    watch_stdout()
    try:
        code = app(standalone_mode=False)
    except typer.TyperException as error:
        complain(f"{error.format_message().replace('Value error, ', '')} (outlast --help)")
        code = error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception as error:
        code = failed(error)
    leave(code if isinstance(code, int) else 0)


@app.command()
def dev(
    data_dir: DataDir = None,
    ephemeral: Annotated[bool, typer.Option("--ephemeral", help="Keep nothing: Temporal in memory, Postgres temporary.")] = False,
    encrypted: Annotated[
        bool,
        typer.Option("--encrypted", help="Encrypt what Temporal keeps, from now on in this data folder, with a key that is kept there."),
    ] = False,
) -> None:
    """Start Temporal, Postgres, a worker and the API on this machine; Ctrl-C stops them."""
    from cli.dev.stack import run_dev

    settings = configured(data_dir)
    run_until_stopped(lambda stop: run_dev(settings, stop, ephemeral=ephemeral, encrypted=encrypted), settings, "outlast")


@app.command()
def api(data_dir: DataDir = None) -> None:
    """Run the HTTP API."""
    from cli.serving import run_api

    settings = configured(data_dir)
    run_until_stopped(lambda stop: run_api(settings, stop, say), settings, "outlast-api")


@app.command()
def worker(data_dir: DataDir = None) -> None:
    """Run a worker."""
    from cli.serving import run_worker

    settings = configured(data_dir)
    run_until_stopped(lambda stop: run_worker(settings, stop, say), settings, "outlast-worker")


@app.command()
def migrate(
    data_dir: DataDir = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Also take back from the runtime role what only an older release needed. Not while one runs.")
    ] = False,
) -> None:
    """Bring the database's schema to this release, grant the runtime role what it needs, and register Temporal's search attributes."""
    from cli.migrating import run_migrate

    settings = configured(data_dir)
    leave(attempt(lambda: asyncio.run(run_migrate(settings, say, warn, exact=exact))))


@app.command()
def export(
    session: Annotated[str, typer.Argument(help="The session's id.")],
    format: Annotated[ExportFormat, typer.Option("--format", help="What to write.")] = ExportFormat.jsonl,
    leaf: Annotated[str | None, typer.Option("--leaf", help="Only the path to this message.")] = None,
    tenant: Annotated[str, typer.Option("--tenant", help="The session's tenant.")] = "default",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file, instead of stdout.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Write a session as a file, from the database. It leaves an audit row."""
    from cli.exporting import run_export

    settings = configured(data_dir)
    work = run_export(settings, session, tenant=tenant, format=format.value, leaf_id=leaf, output=output)
    leave(attempt(lambda: asyncio.run(work)))


app.command()(erasing.erase)
app.command()(rebuilding.verify)
app.command()(rebuilding.rebuild)


@app.command()
def doctor(data_dir: DataDir = None) -> None:
    """Check Python, settings, models, Temporal, Postgres and payload keys: a line each."""
    from cli.doctor import run_doctor

    async def examine() -> None:
        # Left from inside: a check that hangs in a thread must not hold the command.
        try:
            code = 0 if await run_doctor(say, **overrides(data_dir)) else 1
        except Exception as error:
            code = failed(error)
        leave(code)

    asyncio.run(examine())


@app.command()
def stuck(
    attempts: Annotated[int, typer.Option("--attempts", min=2, help="Work that is in this try or a later one.")] = 2,
    waiting: Annotated[
        float, typer.Option("--waiting", min=0, max=31_536_000, help="Work that waits for a worker for more seconds.")
    ] = 60.0,
    data_dir: DataDir = None,
) -> None:
    """List sessions whose work doesn't get on: what is tried again and again, and what no worker takes; exit 1 if there is any."""
    from datetime import timedelta

    from cli.stuck import Limits, run_stuck

    settings = configured(data_dir)
    limits = Limits(attempts, timedelta(seconds=waiting))
    leave(attempt(lambda: asyncio.run(run_stuck(settings, limits))))


@app.command()
def replay(
    files: Annotated[list[Path] | None, typer.Argument(help="Histories as JSON, or folders of them.", show_default=False)] = None,
    from_server: Annotated[bool, typer.Option("--from-server", help="Replay the runs of the Temporal server instead.")] = False,
    query: Annotated[
        str | None,
        typer.Option("--query", help="Temporal list filter of the runs. Default: this release's workflow types on its task queue."),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="The newest so many.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Runs that began since then: a time with its offset, or 90m, 12h, 7d, 2w.")
    ] = None,
    save: Annotated[Path | None, typer.Option("--save", help="Keep the histories that were fetched in this folder.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=0, max=256, help="Processes side by side; 0: one per processor.")] = 0,
    junit: Annotated[Path | None, typer.Option("--junit", help="Also write the outcome as JUnit XML.")] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=1, max=86_400, help="Seconds for one history.")] = 120.0,
    data_dir: DataDir = None,
) -> None:
    """Replay recorded histories against this release's workflows; exit 1 if one would have gone another way."""
    from cli.replay.run import Batch, run_replay

    settings = configured(data_dir)
    batch = Batch(files or [], from_server, query, limit, since, save, jobs, junit, timeout)
    leave(attempt(lambda: asyncio.run(run_replay(settings, batch))))


@app.command()
def chat(
    session: Annotated[str | None, typer.Option("--session", help="Go on with a session.")] = None,
    profile: Annotated[str | None, typer.Option("--profile", help="Profile of a new session.")] = None,
    url: Annotated[
        str | None, typer.Option("--url", help="The API, instead of the one that `outlast dev` runs on the data folder.")
    ] = None,
    once: Annotated[str | None, typer.Option("--once", help="Send this one message, print the answer and leave.")] = None,
    token: Annotated[
        str | None,
        typer.Option("--token", help="API key or bearer token. Better in OUTLAST_TOKEN: others on this machine see command lines."),
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Talk to a session in the terminal, and answer what it asks of its host."""
    from cli.chat.loop import run_chat
    from cli.chat.place import find_api

    settings = configured(data_dir)
    address = url or find_api(settings)
    sent = token or settings.token.get_secret_value() or None
    leave(run_chat(address, sent, session=session, profile=profile, once=once))


if __name__ == "__main__":
    main()
