"""How often one caller may ask. Counted in this process: a shared count would cost each request a write, to guard against little."""

import math
import time
from urllib.parse import quote

import limits
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter

from api.errors import RequestRefused


class Rate:
    """Limits such as `10/second; 300/minute`; empty text limits nothing. An event stream counts as the one request that opens it."""

    def __init__(self, text: str) -> None:
        self._limits = limits.parse_many(text) if text else []
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())

    async def count(self, who: tuple[str, ...]) -> None:
        """Counts one request. Raises RequestRefused (429) if it is one too many for any limit."""
        # The library joins what it is given with slashes, so that names with slashes would share a count.
        name = [quote(part, safe="") for part in who]
        for limit in self._limits:
            if not await self._limiter.hit(limit, *name):
                window = await self._limiter.get_window_stats(limit, *name)
                seconds = max(1, math.ceil(window.reset_time - time.time()))
                raise RequestRefused(429, f"more than {limit}; try again in {seconds} s", headers={"Retry-After": str(seconds)})


__all__ = ["Rate"]
