"""What log lines and spans say of a piece of work: its ids, and the trace that it belongs to.

Workflows know no tracing library. Who runs them binds a `Tracing`; where nobody did, nothing is traced and nothing is carried along.
All of it lives in context variables, which tasks inherit: two workflows of one thread never see each other's.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Protocol

Trace = dict[str, str]
"""The place of some code in a trace, as the headers of W3C Trace Context."""


class Tracing(Protocol):
    """What ties the work of a session to the input that caused it."""

    def here(self) -> Trace:
        """The place of the running code. Empty outside a trace."""

    def work(self, name: str, trace: Trace | None) -> AbstractContextManager[None]:
        """A span under `trace`, or of a trace of its own without one, for as long as the block runs."""

    def apart(self) -> AbstractContextManager[object]:
        """A block outside every trace."""

    def failed(self, kind: str) -> None:
        """The work that this code belongs to came to an error of that kind."""


_ids: ContextVar[Mapping[str, str]] = ContextVar("outlast_ids")
_tracing: ContextVar[Tracing] = ContextVar("outlast_tracing")


def identified() -> Mapping[str, str]:
    """The ids of what runs here, by name."""
    return _ids.get({})


def identify(**ids: object) -> None:
    """Adds ids for the rest of this task. What is None or empty says nothing."""
    _ids.set({**identified(), **{name: str(value) for name, value in ids.items() if value not in (None, "")}})


def forget() -> None:
    """Leaves the ids of whoever started this task behind."""
    _ids.set({})


def bind(tracing: Tracing) -> None:
    """Traces the rest of this task, and the tasks that it starts."""
    _tracing.set(tracing)


def here() -> Trace | None:
    """The place of the running code in a trace. None outside one."""
    tracing = _tracing.get(None)
    return (tracing.here() if tracing else None) or None


def failed(kind: str) -> None:
    """Marks the span of the work that runs here."""
    if tracing := _tracing.get(None):
        tracing.failed(kind)


def apart() -> AbstractContextManager[object]:
    """What is begun within belongs to no trace: it outlives the input that happened to come first."""
    tracing = _tracing.get(None)
    return tracing.apart() if tracing else nullcontext()


@contextmanager
def work(name: str, trace: Trace | None, **ids: object) -> Iterator[None]:
    """A piece of work with ids of its own, which belongs to `trace` rather than to whoever takes it up."""
    before, tracing = identified(), _tracing.get(None)
    identify(**ids)
    try:
        with tracing.work(name, trace) if tracing else nullcontext():
            yield
    except GeneratorExit:
        raise  # the workflow was dropped, and this may be another task's context
    except BaseException:
        _ids.set(before)
        raise
    _ids.set(before)


__all__ = ["Trace", "Tracing", "apart", "bind", "failed", "forget", "here", "identified", "identify", "work"]
