"""Times as clients write them: ISO 8601 with an offset. A bare number is no time (S14)."""

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

_UNESCAPED_PLUS = re.compile(r"(:\d{2}(?:[.,]\d+)?) (\d{2}:?\d{2})$")
"""A `+` that a client did not escape in a query arrives as a space."""


def time_of(value: object) -> datetime:
    """The time, with the offset that it was written with. Raises ValueError for anything else."""
    try:
        time = datetime.fromisoformat(_UNESCAPED_PLUS.sub(r"\1+\2", str(value)))
        if time.tzinfo is not None and time.astimezone(UTC):
            return time
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{str(value)!r} is not an ISO time with an offset, such as 2026-03-01T12:00:00Z")


def _utc(time: datetime) -> datetime:
    return time.astimezone(UTC)


IsoTime = Annotated[datetime, BeforeValidator(time_of), WithJsonSchema({"type": "string", "format": "date-time"})]
UtcTime = Annotated[IsoTime, AfterValidator(_utc)]
"""The same moment as UTC."""
