"""The local driver: what a CSI driver with finite space on one node answers, as plain values. No socket, no clock, no waiting.

It is the driver of the tests and the demo, not a product: a volume is an entry in a journal and what its `backing` makes of it.
It says what real drivers say: RESOURCE_EXHAUSTED when there is no room here, OUT_OF_RANGE for a size it never makes, ALREADY_EXISTS
for a name that stands for something else, INVALID_ARGUMENT for what cannot be meant. Each change is in the journal before the answer is.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn, TypeVar

from hack.sim.driver.folders import Backing, NotOurs
from hack.sim.driver.state import Journal, LocalVolume, Published, State, read_state
from sidecar import __version__
from sidecar.csi import api
from sidecar.csi.api import NOTHING, Capability, CapacityAnswer, CapacityQuery, CreatedVolume, CreateRequest, DriverInfo
from sidecar.csi.outcome import Code, DriverError
from sidecar.model.topology import Segment

T = TypeVar("T")

DEFAULT_NAME: Final = "local.csi-node-sidecar.io"
DEFAULT_POOLS: Final[Mapping[str, int]] = MappingProxyType({"standard": 100 * 2**30})
MIB: Final = 2**20
POOL_PARAMETER: Final = "pool"
"""The class parameter that selects a pool, as `kind` does for hostpath. A class without it gets the first pool."""
_LONGEST_NAME: Final = 128
_ONE_NODE: Final = {"SINGLE_NODE_WRITER", "SINGLE_NODE_READER_ONLY", "SINGLE_NODE_SINGLE_WRITER", "SINGLE_NODE_MULTI_WRITER"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What kind of driver this is. Sizes are bytes; every volume is a whole number of units."""

    node_id: str
    pools: Mapping[str, int] = field(default_factory=lambda: DEFAULT_POOLS)
    topology: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Empty: one key of the driver's own, whose value is the node id."""
    name: str = DEFAULT_NAME
    version: str = __version__
    unit: int = MIB
    measured: bool = False
    """The pool's size is what the file system under the volumes says, and the number in `pools` means nothing."""
    knows_topology: bool = True

    @property
    def segment(self) -> Segment:
        return Segment.of(self.topology or {f"topology.{self.name}/node": self.node_id})


class LocalDriver:
    """One driver on one node. Methods raise DriverError and either happen wholly or not at all.

    `state` names the journal; without one everything is forgotten with the object.
    """

    def __init__(self, spec: Spec, *, state: Path | None = None, backing: Backing | None = None) -> None:
        self.spec = spec
        self._backing = backing or Backing()
        self._state = State(node=spec.node_id)
        self._journal: Journal | None = None
        if state is not None:
            self._recover(state)

    @property
    def info(self) -> DriverInfo:
        spec = self.spec
        return DriverInfo(
            name=spec.name,
            version=spec.version,
            plugin=frozenset({api.CONTROLLER_SERVICE} | ({api.TOPOLOGY} if spec.knows_topology else set())),
            controller=frozenset({api.CREATE_DELETE_VOLUME, api.GET_CAPACITY, api.LIST_VOLUMES, api.SINGLE_NODE_MULTI_WRITER}),
            node_id=spec.node_id,
            segment=spec.segment if spec.knows_topology else Segment(),
        )

    def volumes(self) -> tuple[LocalVolume, ...]:
        return tuple(self._state.volumes.values())

    def free(self, pool: str) -> int:
        """Negative if the pool was made smaller than what had been promised from it."""
        if self.spec.measured and pool in self.spec.pools:
            return self._backed(lambda: self._backing.room({volume.id: volume.bytes for volume in self.volumes()}))
        return self.spec.pools.get(pool, 0) - self._state.used(pool)

    def create(self, request: CreateRequest, *, limit_bytes: int = 0) -> CreatedVolume:
        """Idempotent by name. A repetition is compared before space is, so that it succeeds on a full node."""
        self._check_form(request, limit_bytes)
        existing = self._state.named(request.name)
        if existing is not None:
            self._check_same(existing, request, limit_bytes)
            return self._answer(existing)
        size = self._size(request.required_bytes, limit_bytes)
        if not self._reaches(request.requisite):
            _fail(Code.RESOURCE_EXHAUSTED, f"this driver makes volumes for {self.spec.segment} only")
        volume = self._new(request, self._pool_with(size, request.parameters), size)
        self._backed(lambda: self._backing.make(volume.id))
        try:
            self._change({"op": "create", "volume": asdict(volume)})
        except DriverError:
            self._backed(lambda: self._backing.unmake(volume.id))
            raise
        return self._answer(volume)

    def delete(self, volume_id: str) -> None:
        """Idempotent: a volume that is not there counts as deleted."""
        _require(volume_id, "a volume id")
        if volume_id in self._state.volumes:
            recorded = [published.target for published in self._state.targets(volume_id)]
            in_use = self._backed(lambda: self._backing.in_use(volume_id, recorded))
            if in_use:
                _fail(Code.FAILED_PRECONDITION, f"volume {volume_id} is in use at {in_use[0]}")
            self._backed(lambda: self._backing.retire(volume_id))
            self._change({"op": "delete", "id": volume_id})
            self._forget_ended(self._state.targets(volume_id))
        self._backed(lambda: self._backing.discard(volume_id))

    def get_capacity(self, query: CapacityQuery) -> CapacityAnswer:
        """Zero for a pool, a topology or a use that this driver does not have: that is an answer, not an error."""
        known = not self._unsupported(query.capabilities) and (not query.segment or self._reaches((query.segment,)))
        available = max(0, self.free(self._pool(query.parameters))) if known else 0
        return CapacityAnswer(available, available - available % self.spec.unit, self.spec.unit)

    def list_volumes(self, max_entries: int = 0, starting_token: str = "") -> tuple[tuple[CreatedVolume, ...], str]:
        """Oldest first, so that a page's token, the age of its last volume, holds whatever is created or deleted in between."""
        if max_entries < 0:
            _fail(Code.INVALID_ARGUMENT, "max_entries is negative")
        if starting_token and not (starting_token.isascii() and starting_token.isdigit()):
            _fail(Code.ABORTED, f"{starting_token!r} is no token of this driver")
        after = int(starting_token or 0)
        rest = sorted((volume for volume in self.volumes() if volume.serial > after), key=lambda volume: volume.serial)
        page = rest[:max_entries] if max_entries else rest
        return tuple(self._answer(volume) for volume in page), str(page[-1].serial) if len(page) < len(rest) else ""

    def validate(self, volume_id: str, capabilities: Sequence[Capability]) -> str:
        """The reason why the volume cannot be used like this; empty if it can."""
        _require(volume_id, "a volume id")
        _require(capabilities, "volume capabilities")
        volume = self._volume(volume_id)
        if {capability.block for capability in capabilities} != {capability.block for capability in volume.capabilities}:
            return "block and file system are not exchangeable"
        return self._unsupported(capabilities)

    def publish(self, volume_id: str, target: str, *, capability: Capability | None, readonly: bool = False) -> None:
        """Idempotent. A single writer is held to one target."""
        _require(volume_id, "a volume id")
        _require(target, "a target path")
        if capability is None:
            _fail(Code.INVALID_ARGUMENT, "a volume capability is missing")
        self._volume(volume_id)
        unsupported = self._unsupported((capability,))
        if unsupported:
            _fail(Code.INVALID_ARGUMENT, unsupported)
        wanted = Published(target, volume_id, capability, readonly)
        at_target = self._state.published.get(target)
        self._forget_ended([*self._state.targets(volume_id), *([at_target] if at_target else [])])
        self._check_target(wanted)
        self._backed(lambda: self._backing.publish(Path(target), volume_id, block=capability.block, readonly=readonly))
        if target not in self._state.published:
            self._change({"op": "publish", "published": asdict(wanted)})

    def unpublish(self, volume_id: str, target: str) -> None:
        """Idempotent, also for a volume that is gone."""
        _require(volume_id, "a volume id")
        _require(target, "a target path")
        self._backed(lambda: self._backing.unpublish(Path(target), volume_id))
        known = self._state.published.get(target)
        if known is not None and known.volume_id == volume_id:
            self._change({"op": "unpublish", "target": target})

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _recover(self, path: Path) -> None:
        """The journal does not know of deletions that were cut short, nor of mounts that a reboot has ended."""
        self._state, self._journal = read_state(path), Journal(path)
        if not self._state.node:
            self._change({"op": "begin", "node": self.spec.node_id})
        if self._state.node != self.spec.node_id:
            raise ValueError(f"{path} is the state of node {self._state.node}, not of {self.spec.node_id}")
        for volume_id in self._backing.retired():
            if volume_id in self._state.volumes:
                self._change({"op": "delete", "id": volume_id})
        self._forget_ended(self._state.published.values())
        self._backing.tidy(self._state.volumes)

    def _forget_ended(self, published: Iterable[Published]) -> None:
        ended = self._backed(lambda: {one.target for one in published if not self._backing.lasting(Path(one.target), one.volume_id)})
        for target in sorted(ended):
            self._change({"op": "unpublish", "target": target})

    def _change(self, change: Mapping[str, Any]) -> None:
        if self._journal is not None:
            try:
                self._journal.append(change)
            except OSError as error:
                _fail(Code.INTERNAL, f"the state cannot be written: {error}")
        self._state.apply(change)

    def _check_form(self, request: CreateRequest, limit_bytes: int) -> None:
        _require(request.name, "a name")
        _require(request.capabilities, "volume capabilities")
        problem = (
            (f"a name has at most {_LONGEST_NAME} bytes" if len(request.name.encode()) > _LONGEST_NAME else "")
            or ("a size is negative" if min(request.required_bytes, limit_bytes) < 0 else "")
            # Sources are looked up here once snapshots and clones are claimed.
            or ("volumes are made empty: snapshots and clones are not claimed" if request.source_snapshot or request.source_volume else "")
            or ("mutable parameters are not claimed" if request.mutable_parameters else "")
            or self._unsupported(request.capabilities)
        )
        if problem:
            _fail(Code.INVALID_ARGUMENT, problem)

    def _check_same(self, existing: LocalVolume, request: CreateRequest, limit_bytes: int) -> None:
        too_small = existing.bytes < request.required_bytes
        too_large = limit_bytes and existing.bytes > limit_bytes
        differs = (
            ("size" if too_small or too_large else "")
            or ("parameters" if dict(existing.parameters) != dict(request.parameters) else "")
            or ("capabilities" if set(existing.capabilities) != set(request.capabilities) else "")
            or ("topology" if not self._reaches(request.requisite) else "")
        )
        if differs:
            _fail(Code.ALREADY_EXISTS, f"volume {request.name} exists with other {differs}")

    def _check_target(self, wanted: Published) -> None:
        known = self._state.published.get(wanted.target)
        if known is not None and known != wanted:
            _fail(Code.ALREADY_EXISTS, f"{wanted.target} is published for another volume or another use")
        elsewhere = [other for other in self._state.targets(wanted.volume_id) if other.target != wanted.target]
        if elsewhere and "SINGLE_NODE_SINGLE_WRITER" in {wanted.capability.access_mode, elsewhere[0].capability.access_mode}:
            _fail(Code.FAILED_PRECONDITION, f"the volume has a single writer, at {elsewhere[0].target}")

    def _size(self, required: int, limit: int) -> int:
        size = max(self.spec.unit, -(-required // self.spec.unit) * self.spec.unit)
        if limit and size > limit:
            _fail(Code.OUT_OF_RANGE, f"{size} bytes would be the size, {limit} are allowed")
        return size

    def _pool(self, parameters: Mapping[str, str]) -> str:
        return parameters.get(POOL_PARAMETER) or next(iter(self.spec.pools))

    def _pool_with(self, size: int, parameters: Mapping[str, str]) -> str:
        # A pool that is missing here may exist on another node, so it is told like a full one: the claim can go there. To call
        # the class invalid (INVALID_ARGUMENT) would hold the claim back for everybody.
        pool = self._pool(parameters)
        if pool not in self.spec.pools:
            _fail(Code.RESOURCE_EXHAUSTED, f"node {self.spec.node_id} has no pool {pool}")
        if size > self.free(pool):
            _fail(Code.RESOURCE_EXHAUSTED, f"pool {pool} has {max(0, self.free(pool))} bytes left, not {size}")
        return pool

    def _reaches(self, requisite: Sequence[Segment]) -> bool:
        """Empty: the request leaves it to us. Without the topology feature nobody is entitled to ask."""
        own = self.info.segment
        return not own or not requisite or any(term.within(own) for term in requisite)

    def _unsupported(self, capabilities: Sequence[Capability]) -> str:
        other = sorted({capability.access_mode for capability in capabilities} - _ONE_NODE)
        if other:
            return f"a local volume cannot be {', '.join(other)}"
        refusals = (self._backing.refuses(block=capability.block, mount_flags=capability.mount_flags) for capability in capabilities)
        return next(filter(None, refusals), "")

    def _new(self, request: CreateRequest, pool: str, size: int) -> LocalVolume:
        serial = self._state.serial + 1
        # Not derived from the name: a deletion by an old id must not hit a volume that was made later under the same name.
        identity = f"{self.spec.node_id}-vol-{serial}"
        return LocalVolume(identity, request.name, pool, size, serial, request.capabilities, dict(request.parameters))

    def _volume(self, volume_id: str) -> LocalVolume:
        volume = self._state.volumes.get(volume_id)
        if volume is None and self._backing.is_shared(volume_id):
            return LocalVolume(volume_id, volume_id, "", 0, 0, (Capability("SINGLE_NODE_WRITER"),))
        if volume is None:
            _fail(Code.NOT_FOUND, f"there is no volume {volume_id}")
        return volume

    def _answer(self, volume: LocalVolume) -> CreatedVolume:
        own = self.info.segment
        return CreatedVolume(volume.id, volume.bytes, dict(volume.parameters), (own,) if own else ())

    def _backed(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except (OSError, NotOurs) as error:
            _fail(Code.INTERNAL, str(error))


def _require(value: object, what: str) -> None:
    if not value:
        _fail(Code.INVALID_ARGUMENT, f"{what} is required")


def _fail(code: Code, message: str) -> NoReturn:
    raise DriverError(code, message)
