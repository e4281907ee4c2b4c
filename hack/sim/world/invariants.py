"""What must hold in every world once it is at rest, whatever happened before. Each invariant is one function."""

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Final

from hack.sim.world import bounds, claim_rates, driver_deaths, foreign_objects, hourly_look, measurements, upstream_excuses
from hack.sim.world.bounds import BELIEVED, KEPT
from hack.sim.world.manners import CANARY
from hack.sim.world.node import DRIVER, POOL, TOPOLOGY_KEY, Node
from hack.sim.world.plan import Plan
from hack.sim.world.plan_hostile import IMPOSSIBLE
from hack.sim.world.plan_rolls import Program
from hack.sim.world.referee import HOLLOW, TWO_VOLUMES
from hack.sim.world.request_log import Window
from sidecar.csi.api import CapacityQuery
from sidecar.engine.health import OK, Stopped
from sidecar.frozen import frozen
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, EVENTS, VOLUMES
from sidecar.kube.sightings import SOONEST
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE, Json
from sidecar.model.quantity import parse_bytes
from sidecar.provisioning.effects.reporting import NOT_LISTED

if TYPE_CHECKING:
    from hack.sim.world.world import World


LEAKED: Final = "leaked"
LEFT_OVER: Final = "left over"
STUCK: Final = "stuck"
LOST: Final = "lost"
CAPACITY: Final = "capacity"
TRESPASS: Final = "trespass"
PRESSING: Final = "too many requests"
RESTLESS: Final = "never rests"
UNWELL: Final = "unwell"
TOLD: Final = "a secret was told"

_READS: Final = ("list", "watch")
# Per node and minute at rest. Watches end and are opened again: one for each of five kinds every five minutes.
_READS_AT_REST: Final = 5.0
_WRITES_AT_REST: Final = 0.5
# While there is no API server, the back-off of a claim doubles up to this.
_RETRY_CAP: Final = 15.0


@frozen
class Aftermath:
    """What a world holds at its end."""

    claims: list[Json]
    volumes: list[Json]
    capacities: list[Json]
    classes: list[Json]
    nodes: list[Node]
    excused: frozenset[str] = frozenset()
    """Handles of volumes that upstream has left behind."""
    excused_objects: frozenset[str] = frozenset()
    """Names of PersistentVolumes of which upstream has made a claim a second one."""
    misled: frozenset[str] = frozenset()
    """Nodes on which upstream publishes what it should not."""
    departed: tuple[Node, ...] = ()
    """What was theirs is for people to see to. A write that was on its way may store a volume when its machine is gone."""

    def was_theirs(self, volume: Json) -> bool:
        """Whether that PersistentVolume leads to a node that is not there any more."""
        return any(leads_to(volume, node.name) for node in self.departed)


async def judge(world: "World") -> None:
    """Checks every invariant on the same picture of the world."""
    kinds = (CLAIMS, VOLUMES, CAPACITIES, CLASSES)
    claims, volumes, capacities, classes = [(await world.api.list_page(kind, limit=0)).items for kind in kinds]
    ours = [volume for volume in volumes if not foreign_objects.is_one(volume)]
    after = Aftermath(
        [claim for claim in claims if not foreign_objects.is_one(claim)],
        ours,
        capacities,
        [item for item in classes if item["provisioner"] == DRIVER],
        list(world.nodes.values()),
        upstream_excuses.left_behind(world),
        upstream_excuses.made_second(world, ours),
        upstream_excuses.misled(world),
        tuple(world.departed.values()),
    )
    for invariant in (one_volume_per_claim, nothing_hollow, nothing_left_over, nothing_stuck, all_bound, capacity_right, ours_by_our_word):
        invariant(after, world.found)
    no_leak(after, world.retained, world.found)
    bounds.kept_data_is_there(after.nodes, world.retained, world.found)
    for node in after.nodes:
        if node.runs is Program.OURS:
            nothing_kept(node, world.found)
            all_well(node, world.found)
        elif not node.alive:
            world.found(UNWELL, f"no upstream runs on {node.name}")
        driver_deaths.judge(node, world.found)
        if node.only_ours:
            measurements.judge(node, len(classes), world.found)
    world.wanderings.judge(world.transcript.lines, {node.name: node.lives for node in after.nodes if node.only_ours}, world.found)
    await strangers_untouched(world)
    await nothing_told(world)
    await bounds.bounded(world, {item["metadata"]["name"] for item in classes})
    claim_rates.judge(world.request_log.rates, world.found)
    for window in world.request_log.windows:
        node = world.nodes.get(window.node) or world.departed[window.node]
        if not upstream_excuses.in_a_window(node, window):
            bounded_while_down(window, world.found)
    resting = [node.name for node in after.nodes if node.runs is Program.OURS]
    asked = Counter({key: count for key, count in (world.request_log.resting or Counter()).items() if key[0] in resting})
    asked = hourly_look.without_one_look(asked, world.left_at_rest)
    rests(_without_questions(asked, world.plan), len(resting), world.plan.rest, world.found)


Found = Callable[[str, str], None]


def one_volume_per_claim(after: Aftermath, found: Found) -> None:
    """A suspect does not count: the claim has gone elsewhere, people are told of what may be left here, and only they may delete it."""
    held = [
        volume
        for node in after.nodes
        for volume in node.driver.volumes()
        if volume.id not in after.excused and not _is_told(node, volume.name)
    ]
    for name, count in Counter(volume.name for volume in held).items():
        if count > 1:
            found(TWO_VOLUMES, f"{count} volumes are named {name}")
    objects = [volume for volume in after.volumes if volume["metadata"]["name"] not in after.excused_objects]
    for uid, count in Counter((volume["spec"].get("claimRef") or {}).get("uid") for volume in objects).items():
        if count > 1:
            found(TWO_VOLUMES, f"{count} PersistentVolumes are for claim {uid}")
    for handle, count in Counter(volume["spec"]["csi"]["volumeHandle"] for volume in after.volumes).items():
        if count > 1:
            found(TWO_VOLUMES, f"{count} PersistentVolumes name volume {handle}")


def ours_by_our_word(after: Aftermath, found: Found) -> None:
    """Who made a volume says the sidecar, whatever the driver says."""
    for item in after.volumes:
        told = (item["spec"]["csi"].get("volumeAttributes") or {}).get(names.PROVISIONER_IDENTITY, "")
        if f"-{DRIVER}-" not in told and not upstream_excuses.believed(item):
            found(BELIEVED, f"PersistentVolume {item['metadata']['name']} calls its provisioner {told!r}")


async def nothing_told(world: "World") -> None:
    """What Secrets hold is in no object that more people may read, and in nothing that a process shows."""
    for kind in (EVENTS, CLAIMS, VOLUMES, CAPACITIES):
        for item in (await world.api.list_page(kind, limit=0)).items:
            if CANARY in json.dumps(item):
                world.found(TOLD, f"{kind} {item['metadata']['name']} has it")
    for node in world.nodes.values():
        if node.tools is not None and CANARY in repr(node.tools.decisions.rows()):
            world.found(TOLD, f"{node.name} shows it among its decisions")


def nothing_hollow(after: Aftermath, found: Found) -> None:
    made: dict[str, list[str]] = {}
    for node in (*after.nodes, *after.departed):  # one that was renamed is both
        for volume in node.driver.volumes():
            made.setdefault(volume.id, []).append(node.name)
    for item in after.volumes:
        handle, name = item["spec"]["csi"]["volumeHandle"], item["metadata"]["name"]
        if handle not in made and not after.was_theirs(item):
            found(HOLLOW, f"PersistentVolume {name} has nothing behind it")
        elif handle in made and not any(leads_to(item, node) for node in made[handle]):
            found(HOLLOW, f"PersistentVolume {name} does not lead to {made[handle][0]}, where its volume is")


def leads_to(volume: Json, node: str) -> bool:
    return f"'{node}'" in str(volume["spec"].get("nodeAffinity"))


def nothing_left_over(after: Aftermath, found: Found) -> None:
    wanted = {claim["metadata"]["uid"] for claim in after.claims}
    for item in after.volumes:
        name, phase = item["metadata"]["name"], (item.get("status") or {}).get("phase")
        if (item["spec"].get("claimRef") or {}).get("uid") not in wanted and not after.was_theirs(item):
            found(LEFT_OVER, f"PersistentVolume {name} is {phase}, and its claim is gone")


def nothing_stuck(after: Aftermath, found: Found) -> None:
    """A PersistentVolume that somebody deletes stays until its claim has gone."""
    there = {claim["metadata"]["uid"] for claim in after.claims}
    free = [volume for volume in after.volumes if (volume["spec"].get("claimRef") or {}).get("uid") not in there]
    for kind, items in (("claim", after.claims), ("PersistentVolume", free)):
        for item in items:
            if item["metadata"].get("deletionTimestamp") and not after.was_theirs(item):
                found(STUCK, f"{kind} {item['metadata']['name']} does not go")


def all_bound(after: Aftermath, found: Found) -> None:
    """A claim may stay unbound only if it needs more space than any node has left."""
    free = max(node.driver.free(POOL) for node in after.nodes)
    departed = {node.name for node in after.departed}
    for claim in after.claims:
        if (claim["metadata"].get("annotations") or {}).get(names.SELECTED_NODE) in departed:
            continue
        needed = parse_bytes(claim["spec"]["resources"]["requests"]["storage"])
        impossible = claim["metadata"]["name"].startswith(IMPOSSIBLE)
        if (claim.get("status") or {}).get("phase") != "Bound" and needed <= free and not impossible:
            found(LOST, f"claim {claim['metadata']['name']} is not bound though {free} bytes are free somewhere")


def capacity_right(after: Aftermath, found: Found) -> None:
    """There is one capacity object for each late-binding class and node, with the right figures and not marked stale, and no other."""
    late = [class_ for class_ in after.classes if class_["volumeBindingMode"] != IMMEDIATE]
    for node in after.nodes:
        ours = [item for item in after.capacities if foreign_objects.published_by(node.name, item)]
        published = sorted((item["storageClassName"], *_figures(item)) for item in ours)
        wanted = sorted((class_["metadata"]["name"], *_wanted(node, class_)) for class_ in late)
        if published != wanted and node.name not in after.misled:
            found(CAPACITY, f"{node.name} publishes {published} and should publish {wanted}")
        if any(item["nodeTopology"] != {"matchLabels": {TOPOLOGY_KEY: node.name}} for item in ours):
            found(CAPACITY, f"{node.name} publishes for somewhere else")
        for item in ours:
            if node.runs is Program.OURS and names.STALE_SINCE in (item["metadata"].get("annotations") or {}):
                found(CAPACITY, f"{node.name} calls its figure for {item['storageClassName']} stale, and its driver answers")


def _figures(item: Json) -> tuple[int, int]:
    """A missing figure never counts as right."""
    return parse_bytes(item.get("capacity", -1)), parse_bytes(item.get("maximumVolumeSize", -1))


def _wanted(node: Node, class_: Json) -> tuple[int, int]:
    """What the driver says: at the end no claim has space promised any more."""
    answer = node.driver.get_capacity(CapacityQuery(class_.get("parameters") or {}, node.driver.info.segment))
    return answer.available, answer.maximum or 0


async def nothing_held_back(world: "World") -> None:
    """What is published is no less than what the driver has, without what claims of the node that can be made will take. Those that cannot
    be made hold nothing back."""
    claims, capacities, classes = [(await world.api.list_page(kind, limit=0)).items for kind in (CLAIMS, CAPACITIES, CLASSES)]
    by_name = {class_["metadata"]["name"]: class_ for class_ in classes if class_["provisioner"] == DRIVER}
    for node in (node for node in world.nodes.values() if node.runs is Program.OURS):
        taken = sum(
            parse_bytes(claim["spec"]["resources"]["requests"]["storage"])
            for claim in claims
            if (claim["metadata"].get("annotations") or {}).get(names.SELECTED_NODE) == node.name
            and not claim["spec"].get("volumeName")
            and not claim["metadata"]["name"].startswith(IMPOSSIBLE)
        )
        for item in capacities:
            class_ = by_name.get(item["storageClassName"])
            if class_ is None or not foreign_objects.published_by(node.name, item):
                continue
            published, (available, _) = _figures(item)[0], _wanted(node, class_)
            if published < available - taken:
                found = f"{node.name} publishes {published} for {item['storageClassName']}, and its driver has {available}"
                world.found(CAPACITY, f"{found}, of which claims may take {taken}")


def no_leak(after: Aftermath, retained: Collection[str], found: Found) -> None:
    """Every volume of a driver has its PersistentVolume, or people are told of it."""
    stored = {volume["spec"]["csi"]["volumeHandle"] for volume in after.volumes}
    for node in after.nodes:
        for volume in node.driver.volumes():
            accounted_for = volume.id in stored or volume.id in retained or volume.id in after.excused
            if not accounted_for and not _is_told(node, volume.name):
                found(LEAKED, f"volume {volume.name} on {node.name} has no PersistentVolume")


def _is_told(node: Node, volume_name: str) -> bool:
    """Whether people can read that the node may have that volume for nobody: in the journal, or if that has enough, in the event."""
    in_journal = any(begun.suspect and begun.request.name == volume_name for begun in node.folder.begun.values())
    return in_journal or any(volume_name in text and NOT_LISTED in text for text in node.leaks_told)


def nothing_kept(node: Node, found: Found) -> None:
    """What a process remembers beyond its caches is forgotten when it is done with, because a process runs for months."""
    if node.sidecar is None:
        found(UNWELL, f"no sidecar runs on {node.name}")
        return
    table, caches = node.sidecar.provisioning.room._table, node.sidecar.caches
    for begun in node.folder.begun.values():
        if begun.suspect:
            continue  # it stays for people
        found(KEPT, f"{node.name} still has {begun.request.name} in its journal, though all is settled")
    for uid, progress in table._claims.items():
        if uid not in caches.claims:
            found(KEPT, f"{node.name} still keeps {progress} of claim {uid}, which is gone")
    for uid, findings in table._findings.items():
        if uid not in caches.claims:
            found(KEPT, f"{node.name} still keeps {findings} of claim {uid}, which is gone")
    capacity, space, known = node.sidecar.capacity, node.sidecar.space, set(caches.classes.keys())
    classes = {*(space._published), *(space._bid_for), *(name for _, name in space._pools._answers)}
    if capacity is not None and (room := capacity.room) is not None:
        classes |= {*room._busy, *room._failing, *room._settling}
    for name in sorted(classes - known):
        found(KEPT, f"{node.name} still keeps what it knew of class {name}, which is gone")
    for name in table._removal_steps:
        if name not in caches.volumes:
            found(KEPT, f"{node.name} still keeps how far it came with volume {name}, which is gone")


def all_well(node: Node, found: Found) -> None:
    """Every sidecar is healthy again."""
    for row in node.tools.health.rows() if node.tools is not None else ():
        if not isinstance(row.state, OK | Stopped):
            found(UNWELL, f"{node.name} reports {row}")


async def strangers_untouched(world: "World") -> None:
    for what in (*await foreign_objects.missing(world.api), *await world.foreign.touched()):
        world.found(TRESPASS, what)
    deletions = []
    for at, node, verb, name in _capacity_writes(world.transcript.lines):
        if name in world.foreign.names or name.startswith(foreign_objects.NAME):
            world.found(TRESPASS, f"{node} wrote at {at:.1f} s: {verb} {name}, which is another's")
        if verb == "delete":
            deletions.append((at, name))
    for what in world.foreign.deleted_by_us(deletions):
        world.found(TRESPASS, what)


def _capacity_writes(lines: list[str]) -> Iterator[tuple[float, str, str, str]]:
    """Time, node, verb and name of every capacity write that the server accepted from a node."""
    for line in lines:
        at, node, verb, *rest = line.split()
        if verb in ("update", "patch", "delete") and rest[:1] == [str(CAPACITIES)] and not rest[1].endswith(":"):
            yield float(at), node, verb, rest[1]


def bounded_while_down(window: Window, found: Found) -> None:
    """While the server is down: about one attempt a second for each watched kind, and a back-off for each written claim and volume."""
    seconds = (window.begun if window.ended is None else window.ended) - window.begun
    once_a_second, backing_off = seconds + 3.0 * window.starts, seconds / _RETRY_CAP + (math.log2(seconds + 1.0) + 3.0) * window.starts
    asked: Counter[str] = Counter()
    for what, count in window.asked.items():
        verb, kind = what.split()[:2]
        asked[f"list and watch {kind}" if verb in _READS else f"write {kind}" if kind == str(EVENTS) else what] += count
    for what, count in asked.items():
        # A capacity figure is written again after every creation or deletion, at most once a second.
        limit = backing_off if what.split()[1] in (str(CLAIMS), str(VOLUMES)) else once_a_second
        if what == f"list and watch {VOLUMES}":  # by two watches, which are opened together
            limit += window.starts
        if count > limit:
            found(PRESSING, f"{window.node} asked {count} times in {seconds:.0f} s without a server: {what}")


def _without_questions(asked: Counter[tuple[str, str]], plan: Plan) -> Counter[tuple[str, str]]:
    """Of a volume whose label somebody has changed a node hears nothing, so it asks for it every half minute for as long as it is there."""
    changed = any(item.what == "volume relabelled" for item in plan.events)
    each = plan.rest / SOONEST + 1.0 if changed else 0.0
    return Counter({of: count for of, count in asked.items() if not (of[1].startswith(f"get {VOLUMES} ") and count <= each)})


def rests(asked: Counter[tuple[str, str]], nodes: int, seconds: float, found: Found) -> None:
    """At rest nothing is left to do, so there are hardly any requests."""
    minutes = nodes * seconds / 60.0
    reads = sum(count for (_, what), count in asked.items() if what.split()[0] in _READS)
    writes = asked.total() - reads
    busiest = ", ".join(f"{node} {what} ×{count}" for (node, what), count in asked.most_common(3))
    if reads > _READS_AT_REST * minutes or writes > _WRITES_AT_REST * minutes:
        found(RESTLESS, f"{reads} lists and watches and {writes} other requests of {nodes} nodes in {seconds:.0f} s: {busiest}")
