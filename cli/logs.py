"""What a process writes to stderr: a line per record, for people or as JSON, each with the ids of what it is about and without content.

An exception's own words may quote what somebody said: a tool's arguments, a provider's answer, a value that didn't fit. So of
exceptions that aren't ours lines have the type and where it was raised, and their words at level `debug` only.
"""

import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

from settings import LogSettings
from workflows.contracts import telemetry
from workflows.contracts.errors import OutlastError

LIBRARIES = ("aiobotocore", "botocore", "temporalio", "httpx", "httpx2", "uvicorn", "sqlalchemy", "alembic", "openai", "opentelemetry")
"""They speak from warnings on, whatever the level says of our own."""

SPOKEN_THROUGH = ("temporalio.workflow", "temporalio.activity")
"""The SDK's loggers that our own workflows and activities speak through: they are silent during replay."""

Ids = Callable[[], Mapping[str, str]]

_MOST_CAUSES = 10


def log_to_stderr(settings: LogSettings, spans: Ids = dict) -> logging.Handler:
    """Everything that is logged in this process, ours and the libraries', goes to stderr. `spans` names the trace that code runs in.

    Answers what writes the lines.
    """
    handler = logging.StreamHandler(sys.stderr)
    ids = _ids_with(spans)
    wordy = settings.level == "debug"
    handler.setFormatter(JsonLines(ids, wordy) if settings.format == "json" else TextLines(ids, wordy))
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in SPOKEN_THROUGH:
        logging.getLogger(name).setLevel(settings.level.upper())
    return handler


def keep_ids_out_of_messages() -> None:
    """The SDK would write what it knows of a workflow or activity into each message; here it is in the ids. Once, where workers run."""
    from temporalio import activity, workflow

    activity.logger.activity_info_on_message = False
    workflow.logger.workflow_info_on_message = False


def _ids_with(spans: Ids) -> Ids:
    return lambda: {**telemetry.identified(), **spans()}


class TextLines(logging.Formatter):
    """`time LEVEL logger: message  name=id …`, then the traceback if there is one."""

    def __init__(self, ids: Ids, wordy: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._ids = ids
        self._wordy = wordy

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """The line."""
        ids = " ".join(f"{name}={value}" for name, value in self._ids().items())
        return super().formatMessage(record) + (f"  {ids}" if ids else "")

    def format(self, record: logging.LogRecord) -> str:
        """The line and the traceback."""
        record.exc_text = described(record, self._wordy)
        return super().format(record)


class JsonLines(logging.Formatter):
    """One JSON object a line: `time`, `level`, `logger`, `message`, the ids, and `exception` with a traceback."""

    def __init__(self, ids: Ids, wordy: bool) -> None:
        super().__init__()
        self._ids = ids
        self._wordy = wordy

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._ids(),
        }
        if exception := described(record, self._wordy):
            line["exception"] = exception
        return json.dumps(line, ensure_ascii=False, default=str)


def described(record: logging.LogRecord, wordy: bool) -> str | None:
    """A record's exception with its causes, the first one first, as Python prints them. With `wordy` in their own words."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return None
    return "\nwhich caused:\n".join(_one(each, wordy) for each in reversed(list(_with_causes(error))))


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if found is None:
            return
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def _one(error: BaseException, wordy: bool) -> str:
    frames = "".join(traceback.format_tb(error.__traceback__))
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    words = f": {error}" if (wordy or _is_ours(error)) and str(error) else ""
    inner = "".join(f"\n| {_one(each, wordy)}" for each in error.exceptions) if isinstance(error, BaseExceptionGroup) else ""
    return f"{frames}{name}{words}{inner}"


def _is_ours(error: BaseException) -> bool:
    """Whether an exception's words name services, limits and ids, never content."""
    from temporalio.exceptions import FailureError

    return isinstance(error, OutlastError | FailureError | OSError)


__all__ = ["JsonLines", "TextLines", "described", "keep_ids_out_of_messages", "log_to_stderr"]
