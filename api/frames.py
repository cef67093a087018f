"""Events as they are sent: the bytes of server-sent events."""

import json
from datetime import UTC

from sse_starlette import ServerSentEvent

from activities.db.events import Event

KEEPALIVE = b": keepalive\n\n"

_ONE_LINE = {ord("\n"): " ", ord("\r"): " ", 0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
"""Line ends in JSON text are layout; the other three are characters of strings that some clients take for line ends."""


def frame(session_id: str, event: Event) -> bytes:
    """An event as it is sent. Its `data` is the event's own members behind those that every event has."""
    head = {
        "type": event.type,
        "session_id": session_id,
        "turn_id": event.turn_id,
        "seq": event.after.seq,
        "at": event.at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    }
    own = event.data.translate(_ONE_LINE).strip()[1:-1].strip()
    data = json.dumps(head)[:-1] + (f", {own}}}" if own else "}")
    return ServerSentEvent(data, id=str(event.after), event=event.type, sep="\n").encode()
