"""Replicated storage as DRBD does it, without DRBD: who has quorum, whose copy is up to date, who may write.

    storage = Storage(clock, seed=3)
    storage.add("pvc-1", disks=("a", "b"), diskless=("c",))
    storage.open("a", "pvc-1") and storage.write("a", "pvc-1", "first")
    storage.cut("a", "b"); storage.crash("c")
    drbdsetup.events(storage, "b"), drbdsetup.status(storage, "b"), drbdsetup.show(storage, "b")

Nothing runs by itself: whoever asks sees what is so at the time of the clock. A cut link is noticed by each end 6 to 10.5 s
later, and until then a write that waits for the other end is not acknowledged. `can_write` is the truth.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

NOTICED: Final = (6.0, 10.5)
RECONNECTED: Final = (0.2, 5.0)
UP_TO_DATE, OUTDATED, CONSISTENT, DISKLESS = "UpToDate", "Outdated", "Consistent", "Diskless"


@dataclass
class Replica:
    """One resource on one node."""

    disk: str
    primary: bool = False
    open: bool = False
    quorum: bool = True
    suspended: set[str] = field(default_factory=set)
    failing_io: bool = False
    data: list[str] = field(default_factory=list)
    client: bool = False  # it has no disk, and is meant to have none
    exposed: int = 0  # without a disk: as much as its users have seen
    left: set[str] = field(default_factory=set)  # peers that have gone in good order: known not to be up to date any more


@dataclass
class View:
    """What a node has heard last of a peer that it is connected to."""

    primary: bool = False
    disk: str = UP_TO_DATE
    quorum: bool = True
    hangs: bool = False  # off a Primary: its copy is not stable


@dataclass
class Resource:
    name: str
    number: int
    quorum: str
    copies: dict[str, Replica]
    stand_alone: set[tuple[str, str]] = field(default_factory=set)  # (node, peer)
    views: dict[tuple[str, str], "View"] = field(default_factory=dict)

    def voters(self) -> list[str]:
        return [node for node, copy in self.copies.items() if not copy.client]


class Storage:
    def __init__(self, clock: Callable[[], float], *, seed: int | str = 0) -> None:
        self.clock, self._dice = clock, random.Random(f"drbd {seed}")
        self.resources: dict[str, Resource] = {}
        self.off: set[str] = set()
        self._cut: set[tuple[str, str]] = set()
        self._lost: set[tuple[str, str]] = set()  # (node, peer): the node has noticed that the peer is away
        self._due: dict[tuple[str, str], tuple[float, bool]] = {}  # what it is about to notice: lost, or there again
        self.split_brains = 0

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "clock"}  # for the state file of the fake drbdsetup

    # --- what happens to it -------------------------------------------------------------------------------------------------

    def add(self, name: str, *, disks: Iterable[str], diskless: Iterable[str] = (), quorum: str = "majority") -> None:
        self.now()
        copies = {node: Replica(UP_TO_DATE) for node in disks} | {node: Replica(DISKLESS, client=True) for node in diskless}
        views = {(node, peer): View(disk=copies[peer].disk) for node in copies for peer in copies if node != peer}
        self.resources[name] = Resource(name, len(self.resources), quorum, copies, views=views)
        self._settle()

    def cut(self, one: str, other: str) -> None:
        self._cut |= {(one, other), (other, one)}
        self._look_at([(one, other), (other, one)])

    def heal(self, one: str, other: str) -> None:
        self._cut -= {(one, other), (other, one)}
        self._look_at([(one, other), (other, one)])

    def crash(self, node: str) -> None:
        """The power is off, or the kernel is dead: its processes are gone with it."""
        self.now()
        self.off.add(node)
        for resource in self.of(node):
            copy = resource.copies[node]
            disk = CONSISTENT if copy.disk == UP_TO_DATE else copy.disk
            resource.copies[node] = Replica(disk, quorum=False, data=copy.data, client=copy.client)
        self._look_at(self._pairs(node))

    def stop(self, node: str) -> None:
        """Shut down in good order: its peers know that it is gone."""
        self.now()
        for resource in self.of(node):
            for peer in [peer for peer in resource.copies if self._talks(resource, peer, node)]:
                if resource.copies[peer].disk == UP_TO_DATE:
                    resource.copies[peer].left.add(node)
                    resource.copies[node].disk = DISKLESS if resource.copies[node].disk == DISKLESS else OUTDATED
        self.crash(node)
        for pair in self._pairs(node):
            if pair not in self._cut:
                self._lost.add(pair)
                self._due.pop(pair, None)
        self._settle()

    def boot(self, node: str) -> None:
        self.now()
        self.off.discard(node)
        self._lost |= set(self._pairs(node))
        self._look_at(self._pairs(node))

    def disconnect(self, name: str, one: str, other: str) -> None:
        """`drbdadm disconnect` by a person."""
        self.now()
        self.resources[name].stand_alone |= {(one, other)}
        self._settle()

    def connect(self, name: str, one: str, other: str) -> None:
        self.now()
        self.resources[name].stand_alone -= {(one, other), (other, one)}
        self._settle()

    # --- what its users do ----------------------------------------------------------------------------------------------------

    def open(self, node: str, name: str) -> bool:
        """As a mount does; it makes the node Primary. False: refused."""
        self.now()
        resource = self.resources[name]
        copy = resource.copies.get(node)
        if copy is None or node in self.off or copy.failing_io:
            return False
        if not copy.primary and not self.may_promote(node, name):
            return False
        if not all(self._linked(node, peer) for peer in self.seen(resource, node)):
            return False  # a peer that it counts on does not answer
        if self._weak(resource, node):
            return False  # a peer answers that there is a Primary
        copy.primary = copy.open = True
        self._settle()
        return True

    def close(self, node: str, name: str) -> None:
        """The last process that had it open has ended."""
        self.now()
        copy = self.resources[name].copies[node]
        copy.open = copy.primary = copy.failing_io = False
        copy.suspended -= {"quorum", "no-data"}
        self._settle()

    def write(self, node: str, name: str, text: str) -> bool | None:
        """True: acknowledged; False: an I/O error; None: it hangs, and nobody knows."""
        self.now()
        resource = self.resources[name]
        copy = resource.copies[node]
        if node in self.off or not copy.primary or copy.failing_io:
            return False
        if copy.suspended:
            return None
        seen = self.seen(resource, node)
        if not all(self._talks(resource, node, peer) for peer in seen):
            return None  # without a disk too: who has lost one peer asks the others before it goes on
        reached = [resource.copies[one] for one in (node, *seen) if resource.copies[one].disk == UP_TO_DATE]
        if not reached:
            return False
        for each in reached:
            each.data.append(text)
            copy.exposed = len(each.data)
        return True

    def can_write(self, node: str, name: str) -> bool:
        """Whether a write there could be acknowledged now, or as soon as it has noticed which of its peers are away."""
        self.now()
        resource = self.resources[name]
        copy = resource.copies.get(node)
        if copy is None or node in self.off or not copy.primary or copy.suspended or copy.failing_io:
            return False
        peers = [peer for peer in resource.copies if self._talks(resource, node, peer)]
        return self._has_quorum(resource, node, peers) and any(resource.copies[one].disk == UP_TO_DATE for one in (node, *peers))

    def force_secondary(self, node: str, name: str) -> None:
        """`drbdsetup secondary --force`: I/O fails until the last process has closed it."""
        self.now()
        copy = self.resources[name].copies[node]
        if copy.primary and node not in self.off:
            self._demote(copy)
        self._settle()

    @staticmethod
    def _demote(copy: Replica) -> None:
        copy.primary, copy.failing_io, copy.suspended = False, copy.open, copy.suspended & {"user"}

    def suspend(self, node: str, name: str, *, on: bool = True) -> None:
        """`drbdsetup suspend-io` by a person, or for a snapshot."""
        self.now()
        copy = self.resources[name].copies[node]
        copy.suspended = copy.suspended | {"user"} if on else copy.suspended - {"user"}

    # --- the rules ------------------------------------------------------------------------------------------------------------

    def may_promote(self, node: str, name: str) -> bool:
        """As `drbdsetup events2` finds it out."""
        self.now()
        resource = self.resources[name]
        copy = resource.copies[node]
        views = [resource.views[node, peer] for peer in self.seen(resource, node)]
        if copy.failing_io or not copy.quorum or copy.primary or any(view.primary for view in views):
            return False
        return copy.disk == UP_TO_DATE or any(view.disk == UP_TO_DATE and not view.hangs for view in views)

    def _weak(self, resource: Resource, node: str) -> bool:
        """A peer that it talks to talks to a Primary, and it has lost that one."""
        return any(
            copy.primary and primary != node and not self.sees(resource, node, primary) and self._talks(resource, peer, primary)
            for peer in resource.copies
            if self._talks(resource, node, peer)
            for primary, copy in resource.copies.items()
        )

    def _has_data(self, resource: Resource, node: str, but: str) -> bool:
        """Itself, or a peer, but for this one."""
        reached = [peer for peer in resource.copies if peer != but and (peer == node or self._talks(resource, node, peer))]
        return any(resource.copies[one].disk == UP_TO_DATE for one in reached)

    def _has_quorum(self, resource: Resource, node: str, peers: list[str]) -> bool:
        copy = resource.copies[node]
        if resource.quorum == "off":
            return True
        if copy.client:
            return any(resource.views[node, peer].quorum and resource.views[node, peer].disk == UP_TO_DATE for peer in peers)
        voters = set(resource.voters())
        present = {peer for peer in peers if peer in voters and resource.views[node, peer].disk != DISKLESS}
        present |= {node} if copy.disk != DISKLESS else set()
        missing = voters - present
        if missing and missing <= copy.left:
            voters -= missing
        number = len(voters)
        needed = {"majority": number // 2 + 1, "all": number}.get(resource.quorum) or int(resource.quorum)
        clients = [peer for peer in resource.copies if peer not in resource.voters()]
        ties = copy.quorum and 2 * len(present) == number and 2 * len([one for one in clients if one in peers]) > len(clients)
        return len(present) >= needed or (resource.quorum == "majority" and ties)

    def _settle(self) -> None:
        """Until nothing follows from anything any more."""
        for resource in self.resources.values():
            for _ in range(2 * len(resource.copies)):
                before = repr(resource)
                for node in [node for node in resource.copies if node not in self.off]:
                    for peer in [peer for peer in resource.copies if self._talks(resource, node, peer)]:
                        self._compare(resource, node, peer)
                        their = resource.copies[peer]
                        hangs = any(resource.views[peer, one].primary for one in self.seen(resource, peer) if (peer, one) in resource.views)
                        resource.views[node, peer] = View(their.primary, their.disk, their.quorum, hangs)
                    self._of_one(resource, node)
                if repr(resource) == before:
                    break

    def _of_one(self, resource: Resource, node: str) -> None:
        copy = resource.copies[node]
        goes_on = any(other.primary and self._has_data(resource, peer, node) for peer, other in resource.copies.items() if peer != node)
        if copy.disk == UP_TO_DATE and not copy.primary and goes_on and self._weak(resource, node):
            copy.disk = OUTDATED
        those = [resource.copies[peer] for peer in resource.voters() if peer == node or self._talks(resource, node, peer)]
        if copy.disk == CONSISTENT and 2 * len(those) > len(resource.voters()) and all(one.disk != UP_TO_DATE for one in those):
            newest = max((one.data for one in those), key=len)
            for one in [one for one in those if one.disk == CONSISTENT]:
                one.disk = UP_TO_DATE if len(one.data) == len(newest) else OUTDATED
        copy.left -= {peer for peer, other in resource.copies.items() if other.disk == UP_TO_DATE and peer not in self.off}
        copy.quorum = self._has_quorum(resource, node, self.seen(resource, node))
        if copy.primary:
            copy.suspended = copy.suspended - {"quorum"} if copy.quorum else copy.suspended | {"quorum"}

    def _compare(self, resource: Resource, node: str, peer: str) -> None:
        """Two that are connected: whoever is behind gets what it lacks, unless the other hangs off a Primary that it does not see."""
        mine, theirs = resource.copies[node], resource.copies[peer]
        if mine.primary and not mine.quorum and ((theirs.primary and theirs.quorum) or self._weak(resource, node)):
            self._demote(mine)
        if theirs.client and theirs.primary and len(mine.data) < theirs.exposed and mine.disk == UP_TO_DATE:
            mine.disk = OUTDATED
            self._demote(mine)
        if mine.client or theirs.disk != UP_TO_DATE or mine.disk == DISKLESS or self._weak(resource, node):
            return
        if mine.data != theirs.data[: len(mine.data)] and theirs.data != mine.data[: len(theirs.data)]:
            resource.stand_alone |= {(node, peer), (peer, node)}
            self.split_brains += 1
        elif len(theirs.data) > len(mine.data) or mine.disk != UP_TO_DATE:
            if mine.primary and len(theirs.data) > len(mine.data):  # on-suspended-primary-outdated: force-secondary
                self._demote(mine)
            mine.data, mine.disk = [*max(theirs.data, mine.data, key=len)], UP_TO_DATE

    # --- links ------------------------------------------------------------------------------------------------------------------

    def _linked(self, node: str, peer: str) -> bool:
        return (node, peer) not in self._cut and not self.off & {node, peer}

    def sees(self, resource: Resource, node: str, peer: str) -> bool:
        """By what the node itself knows: it may not have noticed yet."""
        return (node, peer) not in self._lost and not {(node, peer), (peer, node)} & resource.stand_alone

    def seen(self, resource: Resource, node: str) -> list[str]:
        return [peer for peer in resource.copies if peer != node and self.sees(resource, node, peer)]

    def _talks(self, resource: Resource, node: str, peer: str) -> bool:
        both = self.sees(resource, node, peer) and self.sees(resource, peer, node)
        return node != peer and both and self._linked(node, peer)

    def of(self, node: str) -> list[Resource]:
        return [resource for resource in self.resources.values() if node in resource.copies]

    def _pairs(self, node: str) -> list[tuple[str, str]]:
        peers = sorted({peer for resource in self.of(node) for peer in resource.copies} - {node})
        return [pair for peer in peers for pair in ((node, peer), (peer, node))]

    def _look_at(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Each end will notice, in its own time."""
        now = self.now()
        for node, peer in pairs:
            lost, linked = (node, peer) in self._lost, self._linked(node, peer)
            if linked and not lost and (peer, node) in self._lost:
                self._lost.add((node, peer))  # the other end has given up, and says so as soon as it can
                lost = True
            before = self._due.pop((node, peer), None)
            if linked and lost:
                at = self._due.get((peer, node), (now + self._dice.uniform(*RECONNECTED), False))
                self._due[node, peer] = at if not at[1] else (now + RECONNECTED[1], False)
            elif not linked and not lost and node not in self.off:
                self._due[node, peer] = before if before and before[1] else (now + self._dice.uniform(*NOTICED), True)
            elif node in self.off:
                self._lost.add((node, peer))
        self._settle()

    def now(self) -> float:
        now = self.clock()
        while due := sorted((at, pair, lost) for pair, (at, lost) in self._due.items() if at <= now):
            _, pair, lost = due[0]
            for each in [pair] if lost else [pair, (pair[1], pair[0])]:
                self._due.pop(each, None)
                (self._lost.add if lost else self._lost.discard)(each)
            self._settle()
        return now
