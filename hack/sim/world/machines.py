"""The machines of a world of fail-over: their power, replicated or shared storage, kubelets, and processes that write.

A process writes whatever its kubelet, the API server or anybody's sidecar does. Its kubelet ends it, or the power, and nothing else; frozen
I/O keeps it from ending. Shared storage forbids nothing: two nodes that write to it are two writers.
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hack.sim import drbdsetup
from hack.sim.drbd import Storage
from hack.sim.stand_ins import claims_of
from hack.sim.stand_ins.node_controllers import AttachDetach, NodeLifecycle
from hack.sim.stand_ins.stand_in_base import leaves
from hack.sim.world.node import DRIVER, NAMESPACE
from sidecar.failover.drbd import EVENTS, SHOW, STATUS, Reading
from sidecar.failover.evidence import Snapshot
from sidecar.failover.look_io import attachment_name
from sidecar.kube.api import ATTACHMENTS, CLAIMS, LEASES, MERGE_PATCH, NAMESPACES, NODES, PODS, VOLUMES
from sidecar.kube.errors import ApiError, NotFound
from sidecar.model import timestamps
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.world.world import World

_LEASES: Final = "kube-node-lease"
_TICK: Final = 0.5
_BEATS: Final = 10.0
_READS: Final = 5.0
_WRITES: Final = 5.0
HANGS: Final = "hangs"
TRUNCATES: Final = "truncates"


@dataclass(slots=True)
class Process:
    """Of one pod, on one machine."""

    uid: str
    handles: list[str]
    ends_at: float | None = None
    writes_at: float = 0.0


class Door:
    """In the place of `failover.door_io.Door` for one process of a sidecar. What it is fed with, `Machines` says."""

    def __init__(self, machines: "Machines", node: str) -> None:
        self.changed = asyncio.Event()
        self.reading = Reading()
        self._machines, self._node = machines, node

    async def run(self) -> None:
        await asyncio.Event().wait()

    def snapshot(self, now: float) -> Snapshot:
        return self.reading.snapshot(now)

    async def release(self, resource: str) -> str:
        await asyncio.sleep(0.05)
        self._machines.storage.force_secondary(self._node, resource)
        return ""


@dataclass(slots=True)
class Machine:
    name: str
    is_on: bool = True
    kubelet: bool = True
    boot: int = 1
    registered: int = 0
    """The boot of which its kubelet has told the API server."""
    kubelet_from: float = 0.0
    storage_from: float = 0.0
    beats_at: float = 0.0
    reads_at: float = 0.0
    reader: str = ""
    reader_bad_at: float = float("-inf")
    """When its reader was in trouble last."""
    pods: dict[str, Json] = field(default_factory=dict)
    """By uid, as its kubelet knows them."""
    processes: dict[str, Process] = field(default_factory=dict)
    texts: dict[str, tuple[float, str]] = field(default_factory=dict)
    shown: str = ""
    """The last dump of events, by which changes are told."""
    seen: object = None
    """The state of all storage that is in its texts."""
    door: Door | None = None

    @property
    def boot_id(self) -> str:
        return f"{self.name}-boot-{self.boot}"


class Machines:
    def __init__(self, world: "World") -> None:
        self._world, self._store, self.clock = world, world.cluster.store, world.clock
        self.dice = random.Random(f"machines {world.plan.seed}")
        self.storage = Storage(world.clock, seed=world.plan.seed)
        self.shared: set[str] = set()
        self.all: dict[str, Machine] = {name: Machine(name, reads_at=self.dice.uniform(0.0, _READS)) for name in world.nodes}
        self.acknowledged: dict[str, list[str]] = {}
        self.attach_detach: AttachDetach = AttachDetach(
            world.api, DRIVER, clock=world.clock, dice=random.Random(f"attacher {world.plan.seed}"), in_use=self.in_use
        )
        for name, node in world.nodes.items():
            if world.fails_over:
                node.new_door, node.on_send = self._door_of(name), world.failed_over.send

    def _door_of(self, name: str) -> Callable[[], Door]:
        def made() -> Door:
            machine = self.all[name]
            machine.door = Door(self, name)
            for kind, (at, text) in machine.texts.items():
                machine.door.reading.feed(kind, at, text)
            return machine.door

        return made

    async def run(self) -> None:
        for space in (NAMESPACE, _LEASES):
            with suppress(ApiError):
                await self._world.api.create(NAMESPACES, {"metadata": {"name": space}})
        lifecycle = NodeLifecycle(self._world.api, clock=self.clock, nodes=self.all)
        async with asyncio.TaskGroup() as group:
            for doing in (lifecycle.run(), self.attach_detach.run(), self._turn()):
                group.create_task(doing)

    async def _turn(self) -> None:
        while True:
            self.look()
            for machine in self.all.values():
                if machine.is_on:
                    self._io(machine)
                    if machine.kubelet and self.clock() >= machine.kubelet_from:
                        with suppress(ApiError):
                            await self._kubelet(machine)
            self._world.failed_over.sample()
            await asyncio.sleep(_TICK)

    # --- what happens to machines -----------------------------------------------------------------------------------------------

    def power_off(self, name: str, *, in_good_order: bool = False) -> None:
        machine = self.all[name]
        if machine.is_on:
            (self.storage.stop if in_good_order else self.storage.crash)(name)
            machine.is_on, machine.processes, machine.pods, machine.texts, machine.shown = False, {}, {}, {}, ""
            self._world.nodes[name].lay_down()
            self.look()

    def power_on(self, name: str) -> None:
        """Its storage is there a while later, and its kubelet at some time."""
        machine = self.all[name]
        if not machine.is_on:
            machine.is_on, machine.boot, now = True, machine.boot + 1, self.clock()
            machine.storage_from = now + self.dice.choice((0.0, 1.0, self.dice.uniform(0.0, 30.0)))
            machine.kubelet_from = machine.reads_at = now + self.dice.uniform(3.0, 20.0)
            self._world.nodes[name].get_up()

    def heal(self) -> None:
        for machine in self.all.values():
            machine.reader, machine.kubelet, self._world.nodes[machine.name].skew = "", True, 0.0
            self.power_on(machine.name)
            for other in self.all:
                self.storage.heal(machine.name, other)
        for resource in self.storage.resources.values():
            for one, other in list(resource.stand_alone):
                self.storage.connect(resource.name, one, other)
            for name, copy in resource.copies.items():
                if "user" in copy.suspended:
                    self.storage.suspend(name, resource.name, on=False)
        self.attach_detach.stuck = False
        self.look()

    # --- what is so ---------------------------------------------------------------------------------------------------------------

    def could_write(self) -> set[tuple[str, str]]:
        """Nodes and handles: whose side could write at this moment, or, where nothing forbids it, might begin to."""
        found = {(name, handle) for name, machine in self.all.items() for handle in self.shared if machine.registered == machine.boot}
        found = {(name, handle) for name, handle in found if self.all[name].is_on}
        for resource in self.storage.resources.values():
            for name, copy in resource.copies.items():
                by_hand = copy.suspended == {"user"} and copy.primary and name not in self.storage.off
                if by_hand or self.storage.can_write(name, resource.name):
                    found.add((name, resource.name))
        return found

    def may_go_on(self, prefix: str, victim: str) -> bool:
        """Some other node may take over all volumes of this name."""
        of_it = [one for one in self.storage.resources.values() if one.name.startswith(f"{prefix}-")]
        others = [name for name in self.all if name != victim]
        return not of_it or any(all(name in one.copies and self.storage.may_promote(name, one.name) for one in of_it) for name in others)

    def handles_of(self, pod: Json) -> list[str]:
        claims = (self._store.find(CLAIMS, key.partition("/")[2], key.partition("/")[0]) for key in claims_of(pod))
        volumes = (self._store.find(VOLUMES, claim["spec"].get("volumeName") or "") for claim in claims if claim is not None)
        return [volume["spec"]["csi"]["volumeHandle"] for volume in volumes if volume is not None]

    def in_use(self, node: str, handle: str) -> bool:
        """As its kubelet has said last."""
        return any(handle in process.handles for process in self.all[node].processes.values()) if node in self.all else False

    # --- storage ------------------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """What has changed is told to those who listen, and all is read again soon."""
        now, storage = self.clock(), self.storage
        storage.now()
        for machine in self.all.values():
            if machine.is_on and machine.name in storage.off and now >= machine.storage_from:
                storage.boot(machine.name)
        copies = [(one, copy) for one in storage.resources.values() for copy in one.copies.values()]
        state = [(copy.disk, copy.primary, copy.open, copy.quorum, sorted(copy.suspended), copy.failing_io) for _, copy in copies]
        views = [[(v.primary, v.disk, v.quorum, v.hangs) for v in one.views.values()] for one in storage.resources.values()]
        alone = [sorted(one.stand_alone) for one in storage.resources.values()]
        seen = (state, views, alone, sorted(storage._lost), sorted(storage.off))
        for machine in self.all.values():
            if machine.reader == HANGS:
                machine.reader_bad_at = now
            elif machine.is_on and (seen != machine.seen or now >= machine.reads_at):
                self._read(machine, has_changed=seen != machine.seen)
                machine.seen = seen

    def _read(self, machine: Machine, *, has_changed: bool) -> None:
        now, name = self.clock(), machine.name
        there = name not in self.storage.off  # before that the module has no resources
        if has_changed or not machine.shown:
            dump = drbdsetup.events(self.storage, name) if there else "exists -\n"
            for line in drbdsetup.changes(machine.shown, dump) if machine.shown and machine.door else ():
                if machine.door.reading.feed("change", now, line):  # type: ignore[union-attr]
                    machine.door.changed.set()  # type: ignore[union-attr]
            machine.reads_at = min(machine.reads_at, now + _TICK) if machine.shown else now
            machine.shown = dump
            machine.texts.update({STATUS: (0.0, drbdsetup.status(self.storage, name) if there else "[]\n")})
            machine.texts.update({SHOW: (0.0, drbdsetup.show(self.storage, name) if there else "[]\n")})
        if now < machine.reads_at:
            return
        machine.reads_at = now + _READS
        for kind, text in ((EVENTS, machine.shown), *((kind, machine.texts[kind][1]) for kind in (STATUS, SHOW))):
            if machine.reader == TRUNCATES and kind != SHOW:
                machine.reader_bad_at, text = now, text[: len(text) // 2]
            machine.texts[kind] = now, text
            if machine.door is not None and machine.door.reading.feed(kind, now, text):
                machine.door.changed.set()
        if machine.reader == TRUNCATES:
            machine.shown = ""

    def _io(self, machine: Machine) -> None:
        now = self.clock()
        for process in machine.processes.values():
            if now < process.writes_at:
                continue
            process.writes_at = now + _WRITES
            for handle in process.handles:
                text = f"{machine.name} {now:.1f}"
                if handle in self.shared:
                    if others := [name for name in self.all if name != machine.name and self.in_use(name, handle)]:
                        self._world.failed_over.second_writer(handle, machine.name, *others)
                elif self.storage.write(machine.name, handle, text):
                    self.acknowledged.setdefault(handle, []).append(text)

    # --- kubelets -----------------------------------------------------------------------------------------------------------------

    async def _kubelet(self, machine: Machine) -> None:
        now, hears = self.clock(), self._world.network.up(machine.name)
        if hears and (now >= machine.beats_at or machine.registered != machine.boot):
            machine.beats_at = now + _BEATS
            await self._beat(machine)
        if hears:
            pods = [pod for pod in self._store.all_of(PODS) if pod["spec"].get("nodeName") == machine.name]
            machine.pods = {pod["metadata"]["uid"]: pod for pod in pods}
        for uid, process in list(machine.processes.items()):
            if process.ends_at is None and (uid not in machine.pods or leaves(machine.pods[uid])):
                process.ends_at = now + self.dice.uniform(0.5, 3.0)
            if process.ends_at is not None and now >= process.ends_at and not any(self._frozen(machine, process)):
                del machine.processes[uid]
                for handle in process.handles:
                    if handle not in self.shared and not self.in_use(machine.name, handle):
                        self.storage.close(machine.name, handle)
        for uid, pod in list(machine.pods.items()) if hears else ():
            meta = pod["metadata"]
            if uid not in machine.processes and leaves(pod):
                with suppress(NotFound):
                    await self._world.api.delete(PODS, meta["name"], namespace=meta["namespace"], uid=uid, grace_period_seconds=0)
            elif uid not in machine.processes and (pod.get("status") or {}).get("phase") in ("Pending", "Running"):
                await self._start(machine, pod)

    def _frozen(self, machine: Machine, process: Process) -> Iterator[bool]:
        for handle in process.handles:
            copy = self.storage.resources[handle].copies.get(machine.name) if handle not in self.shared else None
            yield copy is not None and bool(copy.suspended) and not copy.failing_io

    async def _beat(self, machine: Machine) -> None:
        world, name = self._world, machine.name
        spec = {"holderIdentity": name, "renewTime": timestamps.to_micro_text(world.wall())}
        if self._store.find(LEASES, name, _LEASES) is None:
            await world.api.create(LEASES, {"metadata": {"name": name}, "spec": spec}, namespace=_LEASES)
        else:
            await world.api.patch(LEASES, name, {"spec": spec}, content_type=MERGE_PATCH, namespace=_LEASES)
        info = {"status": {"nodeInfo": {"bootID": machine.boot_id}}}
        if ((self._store.find(NODES, name) or {}).get("status") or {}).get("nodeInfo") != info["status"]["nodeInfo"]:
            await world.api.patch(NODES, name, info, content_type=MERGE_PATCH, subresource="status")
        conditions = ((self._store.find(NODES, name) or {}).get("status") or {}).get("conditions") or ()
        if not any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
            await world.tell_ready(name, "True")
        machine.registered = machine.boot

    async def _start(self, machine: Machine, pod: Json) -> None:
        """Once its volumes are attached, and the storage lets the node have them."""
        handles, opened = self.handles_of(pod), list[str]()
        for handle in handles:
            found = self._store.find(ATTACHMENTS, attachment_name(handle, DRIVER, machine.name))
            if found is None or leaves(found) or not (found.get("status") or {}).get("attached"):
                return
        for handle in handles:
            if handle not in self.shared and not self.storage.open(machine.name, handle):
                for each in opened:
                    if not self.in_use(machine.name, each):
                        self.storage.close(machine.name, each)
                return
            opened += [handle] if handle not in self.shared else []
        meta = pod["metadata"]
        machine.processes[meta["uid"]] = Process(meta["uid"], handles)
        states = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady", "Initialized")]
        others = [each for each in pod["status"].get("conditions") or () if each["type"] not in ("Ready", "ContainersReady", "Initialized")]
        status = {"metadata": {"uid": meta["uid"]}, "status": {"phase": "Running", "conditions": [*others, *states]}}
        await self._world.api.patch(PODS, meta["name"], status, content_type=MERGE_PATCH, namespace=meta["namespace"], subresource="status")
