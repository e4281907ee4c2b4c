"""Which scopes of health keep the program from being ready."""

from collections.abc import Callable, Iterable, Iterator

from sidecar.engine.health import OK, Row
from sidecar.observe.exposition import Family, gauge
from sidecar.observe.labels import OURS


class Ready:
    def __init__(self, rows: Callable[[], Iterable[Row]]) -> None:
        self._rows = rows

    def collect(self) -> Iterator[Family]:
        ready = gauge(f"{OURS}ready", "Whether this scope is OK.", "scope")
        for row in self._rows():
            if row.gates_ready:
                ready.add((row.path,), isinstance(row.state, OK))
        yield ready
