"""The state machine of the connection to the driver: the socket appears → probed → asked what it is → ready → lost → ready again.

Nothing here waits, connects or reads a clock. `channel.move` performs the one action that it gets from a step, and passes the result as an
event, with the time, to the next step. `_RULES` has all transitions:

    Waiting  Connected → Probing    ConnectFailed → Waiting, or GaveUp when the start limit has passed
    Lost     Connected → Probing    ConnectFailed → Lost
    Probing  Probed(ready) → Reading    Probed(not ready) → Probing, without limit as upstream    Failed → see `_failed`
    Reading  InfoRead → Ready, or GaveUp if the driver is another one than before    Failed → see `_failed`
    Ready    Disconnected → Lost

Upstream exits on every lost connection and lets kubelet restart it. Here the process connects again: when a driver is updated, that saves
listing the whole cluster again. Only if the driver's name, the node's id or its topology has changed does the process exit, like upstream,
since everything else was built on them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from sidecar.csi.api import TOPOLOGY, DriverInfo
from sidecar.csi.outcome import Code, DriverError
from sidecar.engine.backoff import Backoff
from sidecar.model.topology import Segment


@dataclass(frozen=True, slots=True)
class Limits:
    """All in seconds."""

    start: float = 30.0
    """How long the driver may be away before it has been ready for the first time; upstream's value."""
    probe_pause: float = 1.0
    """Between two probes; upstream's value."""
    patience: float = 10.0
    """For one attempt to connect. The socket of a driver that hangs accepts connections and then stays silent."""
    backoff: Backoff = field(default_factory=lambda: Backoff(start=0.2, cap=2.0))
    settled: float = 30.0
    """After being ready for this long the back-off begins anew. A driver whose connections break sooner would be asked for ever without a
    pause that grows."""


# ---- states: what the rest of the program is told -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Waiting:
    """There is no connection, and the driver has never been ready."""

    why: str
    shown: str = ""
    """What anybody may read, where `why` quotes the driver. So in the other states."""


@dataclass(frozen=True, slots=True)
class Probing:
    """Connected; the driver has not yet said that it is ready."""

    why: str
    shown: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """The driver is ready and is being asked what it is."""

    why: str


@dataclass(frozen=True, slots=True)
class Ready:
    """Calls may be made."""

    info: DriverInfo
    why: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class Lost:
    """The driver was ready once and cannot be reached now."""

    why: str
    shown: str = ""


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The process must end, with `why` as its error."""

    why: str


LinkState = Waiting | Probing | Reading | Ready | Lost | GaveUp


# ---- events: what came of an action -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connected:
    pass


@dataclass(frozen=True, slots=True)
class ConnectFailed:
    why: str


@dataclass(frozen=True, slots=True)
class Probed:
    ready: bool


@dataclass(frozen=True, slots=True)
class InfoRead:
    info: DriverInfo


@dataclass(frozen=True, slots=True)
class Failed:
    """A call that asks about the driver itself failed."""

    rpc: str
    error: DriverError

    @property
    def why(self) -> str:
        return f"{self.rpc} failed: {self.error}"

    @property
    def shown(self) -> str:
        """Without the driver's words."""
        return f"{self.rpc} failed with {self.error.code.value}"


@dataclass(frozen=True, slots=True)
class Disconnected:
    why: str


Event = Connected | ConnectFailed | Probed | InfoRead | Failed | Disconnected


# ---- actions: what to do next, after so many seconds --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connect:
    patience: float
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Probe:
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Read:
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Serve:
    """Watch the connection until it breaks."""

    after: float = 0.0


@dataclass(frozen=True, slots=True)
class GiveUp:
    text: str
    after: float = 0.0


Action = Connect | Probe | Read | Serve | GiveUp


NO_LIMIT: Final = "; it is waited for without limit"

# ---- the machine --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Link:
    """The state of the connection. `known` is what the driver reported about itself when it was last ready."""

    path: str
    limits: Limits
    topology: bool
    """Whether topology is used; the feature gate may be off."""
    deadline: float
    state: LinkState
    known: DriverInfo | None = None
    failures: int = 0
    """Attempts that failed, or led to a connection that broke soon, since it was last ready for a while."""
    ready_at: float = 0.0
    """When it became ready."""
    unavailable_since: float | None = None
    """At start: the first of the answers in a row that the driver is unavailable."""
    judges: bool = False
    """Where volumes are is judged by what the driver reports of the node, whether or not topology is used otherwise."""

    @classmethod
    def start(cls, path: str, *, now: float, limits: Limits, topology: bool, judges: bool = False) -> "tuple[Link, Action]":
        waiting = Waiting(f"connecting to {path}")
        return cls(path, limits, topology, now + limits.start, waiting, judges=judges), Connect(min(limits.patience, limits.start))

    def uses(self, info: DriverInfo) -> Segment:
        """The topology as far as it is used: unused topology may change, and topology that becomes used counts as changed."""
        return info.segment if self.judges or (self.topology and TOPOLOGY in info.plugin) else Segment()

    def step(self, event: Event, *, now: float) -> "tuple[Link, Action]":
        rule = _RULES.get((type(self.state), type(event)))
        if rule is None:
            raise ValueError(f"{event} cannot happen to a link that is {self.state}: channel.move has a bug")
        return rule(self, event, now)


Step = tuple[Link, Action]


def _connected(link: Link, _event: Connected, _now: float) -> Step:
    return replace(link, state=Probing("connected; the driver has not yet answered a probe")), Probe()


def _not_connected(link: Link, event: ConnectFailed, now: float) -> Step:
    if link.known is None and now >= link.deadline:
        return _give_up(link, _nobody_came(link, event.why))
    return _away(link, event.why, now)


def _probed(link: Link, event: Probed, _now: float) -> Step:
    link = replace(link, unavailable_since=None)
    if event.ready:
        return replace(link, state=Reading("the driver is ready; asking for its name, capabilities and topology")), Read()
    return replace(link, state=Probing(f"the driver says that it is not ready{NO_LIMIT}")), Probe(after=link.limits.probe_pause)


def _failed(link: Link, event: Failed, now: float) -> Step:
    """A slow driver is asked again without limit. Any other failure ends the start, as upstream; later it must not, as calls may run. One
    that is unavailable has the start limit, for it may be about to restart; upstream ends at once."""
    match event.error.code:
        case Code.DEADLINE_EXCEEDED:
            waits = replace(link, state=Probing(f"{event.why}{NO_LIMIT}", f"{event.shown}{NO_LIMIT}"), unavailable_since=None)
            return waits, Probe(after=link.limits.probe_pause)
        case Code.UNAVAILABLE if link.known is None:
            return _unavailable(link, event, now)
        case _ if link.known is not None:
            return _away(link, event.why, now, shown=event.shown)
        case _:
            return _give_up(link, _refused(link, event))


def _unavailable(link: Link, event: Failed, now: float) -> Step:
    limit = link.limits.start
    since = now if link.unavailable_since is None else link.unavailable_since
    if now >= since + limit:
        return _give_up(link, f"{_refused(link, event)} It was unavailable for {limit:g} s.")
    # It was connected a moment ago, so the start limit begins again, once: a driver that restarts gets the same time.
    again = replace(link, deadline=since + limit, unavailable_since=since)
    ends = f"; this process ends if that lasts for {limit:g} s"
    return _away(again, f"{event.why}{ends}", now, shown=f"{event.shown}{ends}")


def _read(link: Link, event: InfoRead, now: float) -> Step:
    changed = [] if link.known is None else _changes(link.known, event.info, used=link.uses)
    if changed:
        return _give_up(link, _changed(link, changed))
    return replace(link, state=Ready(event.info), known=event.info, ready_at=now), Serve()


def _disconnected(link: Link, event: Disconnected, now: float) -> Step:
    lasted = now - link.ready_at >= link.limits.settled
    return _away(replace(link, failures=0) if lasted else link, event.why, now)


_RULES: Final[Mapping[tuple[type[LinkState], type[Event]], Callable[[Link, Any, float], Step]]] = {
    (Waiting, Connected): _connected,
    (Waiting, ConnectFailed): _not_connected,
    (Lost, Connected): _connected,
    (Lost, ConnectFailed): _not_connected,
    (Probing, Probed): _probed,
    (Probing, Failed): _failed,
    (Reading, InfoRead): _read,
    (Reading, Failed): _failed,
    (Ready, Disconnected): _disconnected,
}


def _away(link: Link, why: str, now: float, *, shown: str = "") -> Step:
    """Connect after a back-off. Before the driver has been ready, the last attempt is at the start limit itself."""
    after, patience = link.limits.backoff.delay(link.failures), link.limits.patience
    state: LinkState = Lost(why, shown)
    if link.known is None:
        state = Waiting(why, shown)
        after = max(0.0, min(after, link.deadline - now))
        patience = max(min(patience, link.deadline - now - after), link.limits.backoff.start)
    return replace(link, state=state, failures=link.failures + 1), Connect(patience, after=after)


def _give_up(link: Link, text: str) -> Step:
    return replace(link, state=GaveUp(text)), GiveUp(text)


# ---- what a person reads ------------------------------------------------------------------------------------------------


def _nobody_came(link: Link, why: str) -> str:
    return (
        f"no CSI driver within {link.limits.start:g} s: {why}. Check that the driver's container runs, that --csi-address "
        "names the socket it serves, and that both containers mount the directory of that socket."
    )


def _refused(link: Link, event: Failed) -> str:
    if event.error.code is Code.UNIMPLEMENTED:
        central = ". If it provisions centrally, --provisioning=false reports only" if event.rpc == "ControllerGetCapabilities" else ""
        return (
            f"the CSI driver at {link.path} does not implement {event.rpc}, which every CSI driver on a node must: {event.error}{central}"
        )
    return f"the CSI driver at {link.path} failed {event.rpc} at start: {event.error}. Its own log should say why."


def _changed(link: Link, changes: list[str]) -> str:
    return (
        f"the CSI driver at {link.path} came back as another one: {'; '.join(changes)}. "
        "What this process holds was built on the old answer; it ends so that a new one starts from the new answer."
    )


def _changes(old: DriverInfo, new: DriverInfo, *, used: Callable[[DriverInfo], Segment]) -> list[str]:
    pairs = [
        ("its name", old.name, new.name),
        ("the node's id", old.node_id, new.node_id),
        ("the node's topology", str(used(old)), str(used(new))),
    ]
    return [f"{what} was {before!r} and is now {after!r}" for what, before, after in pairs if before != after]


@dataclass(frozen=True, slots=True)
class Remark:
    """A warning for the log: a constant message and its fields."""

    message: str
    fields: Mapping[str, str]


# "Domain name notation, at most 63 characters, beginning and ending with an alphanumeric" (CSI spec, GetPluginInfo).
_DRIVER_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")


def remarks(old: DriverInfo | None, new: DriverInfo, *, topology: bool) -> list[Remark]:
    """Warnings about a driver that is accepted, as upstream accepts it."""
    found = []
    if not _DRIVER_NAME.fullmatch(new.name):
        found.append(Remark("The driver's name is not one the CSI specification allows", {"driver": new.name}))
    if topology and TOPOLOGY in new.plugin and not new.segment:
        found.append(Remark("The driver advertises topology but reports none for this node", {"driver": new.name}))
    if topology and TOPOLOGY in new.plugin and (flaw := new.segment.flaw()):
        text = "The driver reports a topology for this node that no object can name: nothing is published and no volumes are made here"
        found.append(Remark(text, {"driver": new.name, "err": flaw}))
    if old is not None:
        found += _capability_remarks(old, new)
    return found


def _capability_remarks(old: DriverInfo, new: DriverInfo) -> list[Remark]:
    before, after = old.plugin | old.controller, new.plugin | new.controller
    if before == after:
        return []
    fields = {"gained": ",".join(sorted(after - before)), "lost": ",".join(sorted(before - after))}
    return [Remark("The driver came back with other capabilities", fields)]
