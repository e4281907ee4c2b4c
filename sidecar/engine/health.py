"""The health of the program: a tree of scopes, each with one state, and the answers of two probes.

Readiness asks "may work be sent here?", liveness asks "would a restart help?". A driver that is not there yet makes the program unready,
but a restart would not help. So each scope says separately which of the two it decides, and most decide neither.
The probes are served by `observe.server`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nothing has been reported yet."""

    severity: ClassVar[int] = 1
    why: ClassVar[str] = "nothing reported yet"


@dataclass(frozen=True, slots=True)
class OK:
    severity: ClassVar[int] = 0
    why: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class Degraded:
    """Does not do its work now, and is expected to recover by itself."""

    why: str
    severity: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class Stopped:
    """Will not do its work again without a restart."""

    why: str
    severity: ClassVar[int] = 3


State = Unknown | OK | Degraded | Stopped


@dataclass(frozen=True, slots=True)
class Row:
    """One scope, for a page that people read."""

    path: str
    state: State
    gates_ready: bool
    gates_live: bool

    def __str__(self) -> str:
        name = type(self.state).__name__
        return f"{self.path}: {name}: {self.state.why}" if self.state.why else f"{self.path}: {name}"


class Scope:
    """A part of the program that reports its state. Made by `Health.scope` or by the scope above it."""

    def __init__(self, path: str, *, gates_ready: bool, gates_live: bool) -> None:
        self.path = path
        self.gates_ready = gates_ready
        self.gates_live = gates_live
        self._reported: State | None = None
        self._children: dict[str, Scope] = {}

    def scope(self, name: str, *, gates_ready: bool = False, gates_live: bool = False) -> "Scope":
        """A new scope below this one. A second one of the same name would hide the first, so it is refused."""
        if name in self._children:
            raise ValueError(f"health scope {self.path}/{name} exists already")
        path = f"{self.path}/{name}" if self.path else name
        child = Scope(path, gates_ready=gates_ready, gates_live=gates_live)
        self._children[name] = child
        return child

    def report(self, state: State) -> None:
        self._reported = state

    @property
    def state(self) -> State:
        """The worst state reported here and below. A scope that only groups others reports none itself."""
        below = [child.state for child in self._children.values()]
        states = below if self._reported is None else [self._reported, *below]
        return max(states, key=lambda state: state.severity, default=Unknown())

    def row(self) -> Row:
        return Row(self.path, self.state, self.gates_ready, self.gates_live)

    def walk(self) -> Iterator["Scope"]:
        """Every scope below this one, parents first, in the order in which they were made."""
        for child in self._children.values():
            yield child
            yield from child.walk()


class Health:
    """The root of the tree, and the program's heartbeat."""

    def __init__(self) -> None:
        self._root = Scope("", gates_ready=False, gates_live=False)
        self._beat: float | None = None

    def scope(self, name: str, *, gates_ready: bool = False, gates_live: bool = False) -> Scope:
        return self._root.scope(name, gates_ready=gates_ready, gates_live=gates_live)

    def heartbeat(self, now: float) -> None:
        self._beat = now

    def rows(self) -> list[Row]:
        return [scope.row() for scope in self._root.walk()]

    def ready(self) -> tuple[bool, list[str]]:
        """Ready when every scope that gates readiness is OK. A scope without a report is not."""
        reasons = [str(row) for row in self.rows() if row.gates_ready and not isinstance(row.state, OK)]
        return not reasons, reasons

    def live(self, now: float, *, stale_after: float) -> tuple[bool, list[str]]:
        """Alive unless a scope that gates liveness has stopped for good, or the heartbeat is older than `stale_after`.

        Before the first heartbeat there is no limit: a start may take long.
        """
        reasons = [str(row) for row in self.rows() if row.gates_live and isinstance(row.state, Stopped)]
        if self._beat is not None and now - self._beat > stale_after:
            reasons.append(f"heartbeat: the last one was {now - self._beat:.1f} s ago, the limit is {stale_after:g} s")
        return not reasons, reasons
