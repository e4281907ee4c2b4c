"""What becomes a label of a metric where somebody else chooses the text: a tenant, the driver or a server.

A series is kept as long as the process lives, so each label has a closed set of values. What is in none of them is `other`.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from sidecar.model import names

M = TypeVar("M")

OURS: Final = "csi_node_sidecar_"
"""How the names of metrics begin that upstream does not have."""

OTHER: Final = "other"

_SOURCES: Final = frozenset({"", names.CLAIM, names.SNAPSHOT})
_MOST_DRIVERS: Final = 4
_LONGEST_DRIVER: Final = 63
"""As CSI has it."""


def source(kind: str) -> str:
    """Of a claim's data source. Populators have kinds of their own, and a claim may name any."""
    return kind if kind in _SOURCES else OTHER


def status(code: int) -> str:
    """Of an HTTP answer; 0 means that there was none, which client-go calls `<error>`."""
    if not code:
        return "<error>"
    return str(code) if code in _STATUSES else OTHER


# Those that have a name, as the registry of HTTP has it.
_STATUSES: Final = frozenset(
    {*range(200, 209), 226, *range(300, 309), *range(400, 419), *range(421, 427), 428, 429, 431, 451, *range(500, 509), 510, 511}
)


class Drivers:
    """The names of drivers. There is one, but a driver may call itself something else whenever it is asked."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def label(self, name: str) -> str:
        if name not in self._known and (len(self._known) >= _MOST_DRIVERS or len(name) > _LONGEST_DRIVER):
            return OTHER
        self._known.add(name)
        return name


class Classes(Generic[M]):
    """Names of classes. A claim may name one that is not there, so what `exists` says counts. The series of one that has gone go too."""

    def __init__(self, exists: Callable[[str], bool] = lambda name: True) -> None:
        self.exists = exists
        self._series: dict[str, dict[tuple[M, tuple[str, ...]], None]] = {}

    def label(self, name: str) -> str:
        return name if not name or self.exists(name) else OTHER

    def used(self, metric: M, labels: tuple[str, ...]) -> bool:
        """This metric has a series whose first label is a class's. Returns whether it is the first of that class."""
        if labels[0] in ("", OTHER):
            return False
        is_first = labels[0] not in self._series
        self._series.setdefault(labels[0], {})[metric, labels] = None
        return is_first

    def gone(self) -> list[tuple[M, tuple[str, ...]]]:
        """The series of classes that are not there any more. Each is returned once."""
        gone = [name for name in self._series if not self.exists(name)]
        return [series for name in gone for series in self._series.pop(name)]
