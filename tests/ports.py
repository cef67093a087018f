"""Ports for what a test starts a moment later, or starts again: nobody else gets one of them meanwhile."""

import itertools
import os
from pathlib import Path

from cli.services.ports import port_is_free

LOWEST = 12_000
PROCESSES = 16
"""Test processes that have ports of their own."""


def _ours() -> range:
    """Ports of this process, of those that the kernel never gives to a connection, or to a server that asks for any."""
    told = Path("/proc/sys/net/ipv4/ip_local_port_range")
    end = int(told.read_text().split()[0]) if told.exists() else 32_768
    each = max(end - LOWEST, 16_000) // PROCESSES
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % PROCESSES
    return range(LOWEST + process * each, LOWEST + (process + 1) * each)


_OURS = _ours()
_numbers = itertools.count(os.getpid() * 31)
"""Two runs on one machine begin in different places."""


def free_port() -> int:
    """A port of loopback that nobody listens on. No test of this run gets it again soon."""
    while not port_is_free(port := _OURS[next(_numbers) % len(_OURS)]):
        continue
    return port
