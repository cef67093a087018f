"""What every worker process of a run does beside its work: it says when it is ready, and stops in order when it is asked to."""

import asyncio
import signal
import sys

READY = "ready to work"


async def until_stopped() -> None:
    """Tells the process that started this one that it may be measured; returns at SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    await stop.wait()
