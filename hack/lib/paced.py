"""Runs the program with its own pauses and limits shortened, for end-to-end tests: `python -m hack.lib.paced 5 [FLAG ...]`.

The clock of its event loop runs faster, and its selector waits shorter by the same factor: a minute between two looks passes in twelve
seconds. The wall clock, the API server and the driver keep their time. So the program needs no switch for it; but its time limits for
requests are shorter too, which is why nothing here runs more than ten times faster.
"""

import selectors
import sys
import time


def shorten(speed: float) -> None:
    """Before the program is imported: its rooms keep the clock that they find."""
    clock, select = time.monotonic, selectors.DefaultSelector.select
    begun = clock()

    def faster() -> float:
        return begun + (clock() - begun) * speed

    def shorter(selector: selectors.DefaultSelector, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return select(selector, None if timeout is None else timeout / speed)

    time.monotonic = faster
    selectors.DefaultSelector.select = shorter  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    _, factor, *flags = sys.argv
    shorten(float(factor))
    from sidecar.cli import main

    sys.exit(main(flags))
