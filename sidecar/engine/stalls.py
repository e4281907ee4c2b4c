"""Measures for how long the event loop stood still: by how much a timer was late.

While the loop runs one callback, or waits for the processor, nothing else happens: no probe is answered, no deadline kept. One timer in
each period sees every stall that is longer than the period, and a share of the shorter ones, so their distribution is a sample.
"""

import asyncio
from collections.abc import Callable
from typing import Final

PERIOD: Final = 0.25
"""Four timers a second cost less than a thousandth of a processor."""


async def watch(observe: Callable[[float], None], *, period: float = PERIOD) -> None:
    """Until cancelled: tells by how many seconds each timer was late."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        due = max(due, loop.time()) + period
        await asyncio.sleep(due - loop.time())
        observe(max(0.0, loop.time() - due))
