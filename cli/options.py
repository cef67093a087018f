"""What commands share: the data folder, settings, and how they speak."""

import getpass
import sys
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.environment import load_settings
from cli.logs import log_to_stderr
from settings import Settings
from workflows.contracts.errors import SetupError
from workflows.contracts.naming import party_problem

DataDir = Annotated[Path | None, typer.Option("--data-dir", help="The data folder, instead of OUTLAST_DATA_DIR (default .outlast).")]


class ExportFormat(StrEnum):
    """What `outlast export` can write; the values are those of the API."""

    jsonl = "jsonl"
    markdown = "markdown"
    openai = "openai"
    pydantic_ai = "pydantic-ai"


def configured(data_dir: Path | None) -> Settings:
    """The settings, with logging set up as they say. Raises SetupError."""
    settings = load_settings(**overrides(data_dir))
    log_to_stderr(settings.log)
    return settings


def overrides(data_dir: Path | None) -> dict[str, Any]:
    """Options of the command line that go before the environment."""
    return {} if data_dir is None else {"data_dir": data_dir}


def operator() -> str:
    """Who is at the command line, for the audit: the account on this machine."""
    return f"operator:{getpass.getuser()}"


def check_parties(**names: str) -> None:
    """Raises SetupError for a tenant or principal that is none; the keywords say which it is."""
    for what, name in names.items():
        if (problem := party_problem(name)) is not None:
            raise SetupError(f"the {what} {problem}")


def counted(number: int, noun: str) -> str:
    """How many of them: `1 session`, `2 sessions`. For nouns that take an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def help_alone(context: typer.Context) -> None:
    """Shows the help if no command is given."""
    if context.invoked_subcommand is None:
        say(context.get_help())


def or_version(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Say which release this is, and leave.")] = False
) -> None:
    """The same; or which release it is, if that is asked."""
    if version:
        from importlib.metadata import version as installed

        say(f"outlast {installed('outlast')}")
        raise typer.Exit
    help_alone(context)


def say(text: str) -> None:
    """One line on stdout."""
    print(text, flush=True)


def note(text: str) -> None:
    """One line on stderr, which a pipe does not take for the answer. If that is gone, the command goes on."""
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """One line on stderr."""
    note(f"warning: {text}")
