"""Why a replay came to no end.

The SDK's core only gives on what it was sent, where texts are encoded as those of all failures are, and a signal that can't be read is
dropped without a word of it. The SDK's worker logs the exceptions themselves.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from traceback import extract_tb

from pydantic import ValidationError

from activities.db.payloads import PayloadGone
from workflows.contracts.errors import OutlastError

_KNOWN = {
    "[TMPRL1105]": "a payload is kept outside of the history, and there is no database to get it from: set OUTLAST_DATABASE__URL",
}


class Overheard(logging.Handler):
    """Keeps the first exception that the SDK's worker logs, and shows none of what it logs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._first: BaseException | None = None
        logger = logging.getLogger("temporalio.worker")
        logger.propagate = False
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the record's exception if it is the first one."""
        if self._first is None and record.exc_info:
            self._first = record.exc_info[1]

    def take(self) -> BaseException | None:
        """What was kept, and forgets it."""
        first, self._first = self._first, None
        return first


def cause(error: BaseException) -> str:
    """In one line what is at the bottom of an exception: what one of ours says, which fields don't fit, or the exception and where it was raised."""
    chain = list(_chain(error))
    for one in chain:
        if isinstance(one, OutlastError):
            return _line(one)
        if isinstance(one, ValidationError):
            return _fields(one)
        for known, told in _KNOWN.items():
            if known in str(one):
                return told
    last = chain[-1]
    frames = extract_tb(last.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(last).__name__}: {_line(last)}{where}"


def lacks_payload(error: BaseException) -> bool:
    """Whether it came of a payload that is stored nowhere any more."""
    return any(isinstance(one, PayloadGone) for one in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    step: BaseException | None = error
    while step is not None:
        yield step
        step = step.__cause__


def _fields(error: ValidationError) -> str:
    """`SessionStart: tenant: Field required`, with each field that doesn't fit."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return f"{error.title}: " + "; ".join(
        ": ".join([".".join(map(str, fault["loc"])), fault["msg"]]).removeprefix(": ") for fault in faults
    )


def _line(error: BaseException) -> str:
    return " ".join(str(error).removeprefix("[TMPRL1101] ").split())


__all__ = ["Overheard", "cause", "lacks_payload"]
