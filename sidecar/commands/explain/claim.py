"""`explain pvc NAMESPACE/NAME`: why this claim has no volume yet, and what to do; from what the cluster shows, wherever it is typed.

The claim has to be readable. Of all else, what may not be read or does not answer is named, and the answer goes on without it.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from sidecar.commands.check import reading
from sidecar.commands.check.findings import Provisioner
from sidecar.commands.explain.question import Answer, Question
from sidecar.commands.forms import structured
from sidecar.commands.printing import program
from sidecar.commands.tables import table
from sidecar.commands.text import age, size
from sidecar.config.config import Config
from sidecar.config.syntax import scan
from sidecar.config.table import IGNORE, KINDS, LABELLED, SHORTHANDS
from sidecar.config.words import closest
from sidecar.doors import Instruments, Opened, open_doors
from sidecar.drain.where import maker_of
from sidecar.drain.words import Status, first_few
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, CSI_NODES, DAEMON_SETS, EVENTS, NODES, PODS, VOLUMES, Resource, records
from sidecar.kube.errors import ApiError
from sidecar.kube.proxy import is_loopback
from sidecar.local.claim_labels import REMEDY, why_wrong
from sidecar.model import names, timestamps
from sidecar.model.nodes import Node
from sidecar.model.objects import IMMEDIATE, CapacityRecord, Claim, Class, Json, Volume
from sidecar.model.topology import Segment
from sidecar.observe.sanitize import clipped, plain

R = TypeVar("R")
_NAMESPACE: Final = "default"
_CONTROLLER: Final = "persistentvolume-controller"
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_MANY_NODES: Final = ("ReadWriteMany", "ReadOnlyMany")
_MOST_EVENTS: Final = 2
_LONGEST: Final = 400
"""Characters of what others have written: an event, the scheduler's sentence."""


async def answer(config: Config, question: Question) -> Answer:
    doors = await open_doors(config, Instruments(), on_link=lambda _: None)
    try:
        look = _Look(doors)
        claim = await look.read(question.namespace or doors.kube.namespace or _NAMESPACE, question.name)
    finally:
        await doors.close()
    status, what_to_do = look.bound(claim) if claim.volume_name else look.why_not(claim)
    return laid_out(look.rows | ({"not known": look.unread} if look.unread else {}) | {"next": what_to_do}, status, question)


def laid_out(rows: Mapping[str, str | list[str]], status: Status, question: Question) -> Answer:
    if question.is_structured:
        return Answer(structured(plain({**rows, "status": status}), question.form), (status,))
    lines = [(name, value) for name, values in rows.items() for value in ([values] if isinstance(values, str) else values)]
    shown = [(name if place == 0 or lines[place - 1][0] != name else "", value) for place, (name, value) in enumerate(lines)]
    return Answer("\n".join(table(shown)), (status,))


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A pod of the selected node, or a DaemonSet where no node is selected."""

    found: Provisioner
    obj: Json

    @property
    def flags(self) -> Mapping[str, str]:
        return {one.flag: one.text for one in scan(self.found.words, KINDS, SHORTHANDS).given}

    @property
    def provisions(self) -> bool:
        return self.flags.get("provisioning", "").lower() not in ("0", "f", "false")

    @property
    def is_ready(self) -> bool:
        status = self.obj.get("status") or {}
        if self.found.kind == names.DAEMON_SET:
            return bool(status.get("numberReady"))
        return any(one.get("type") == "Ready" and one.get("status") == "True" for one in status.get("conditions") or ())

    @property
    def state(self) -> str:
        status = self.obj.get("status") or {}
        if self.found.kind == names.DAEMON_SET:
            return f"ready on {status.get('numberReady') or 0} of {status.get('desiredNumberScheduled') or 0} nodes"
        if self.is_ready:
            return "is ready"
        waits = [
            f"{one.get('name')} {reason}"
            for one in status.get("containerStatuses") or ()
            if (reason := ((one.get("state") or {}).get("waiting") or {}).get("reason"))
        ]
        said = [str(one["message"]) for one in status.get("conditions") or () if one.get("type") == "Ready" and one.get("message")]
        return f"is not ready: {clipped('; '.join(waits or said) or str(status.get('phase') or 'its state is not told'), _LONGEST)}"

    @property
    def debug_port(self) -> int:
        """Where the API server may ask for its debug pages; 0: nowhere."""
        host, _, port = self.flags.get("debug-endpoint", "").rpartition(":")
        return int(port) if port.isdecimal() and host != "localhost" and not is_loopback(host.strip("[]")) else 0


@dataclass(slots=True, eq=False, repr=False)
class _Look:
    """What was read. None: it could not be, and `unread` says why."""

    doors: Opened
    now: float = field(default_factory=time.time)
    rows: dict[str, str | list[str]] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    obj: Json = field(default_factory=dict)
    classes: list[Class] | None = None
    default: str = ""
    class_: Class | None = None
    driver: str = ""
    volumes: list[Volume] | None = None
    nodes: list[Node] | None = None
    """The selected one alone, where one is selected."""
    drivers: set[str] = field(default_factory=set)
    """All that a node has: whose a sidecar is that names another one is known by it."""
    registered: list[str] | None = None
    """Nodes on which the driver is."""
    free: list[CapacityRecord] | None = None
    """What is published for the class."""
    sidecars: list[Sidecar] | None = None
    pods: list[Json] | None = None
    """Those that use the claim; read where no node is selected and the class waits for one."""
    events: list[Json] | None = None

    async def read(self, namespace: str, name: str) -> Claim:
        self.obj = await self.doors.kube.get(CLAIMS, name, namespace=namespace)
        claim = Claim.of(self.obj)
        phase = (self.obj.get("status") or {}).get("phase") or "Pending"
        asked = "a size that cannot be read" if claim.requested is None else size(claim.requested)
        self.rows["claim"] = f"{claim.full_name} is {phase}: {asked}, {', '.join(claim.access_modes)}"
        if claim.volume_name:
            self.volumes = await self._list(VOLUMES, Volume.of, field_selector=f"metadata.name={claim.volume_name}")
            self.nodes = await self._list(NODES, Node.of, cached=True)
            return claim
        await self._read_class(claim)
        about = f"involvedObject.kind={names.CLAIM},involvedObject.name={name},involvedObject.uid={claim.uid}"
        self.events = await self._list(EVENTS, _whole, namespace=namespace, field_selector=about)
        if self.driver:
            await self._read_nodes(claim)
            await self._read_sidecars(claim)
        if self._is_late and not claim.selected_node:
            self.pods = await self._list(PODS, lambda pod: pod if _uses(pod, claim) else None, namespace=namespace)
        self._tell(claim)
        await self._tell_decision(claim)
        return claim

    async def _list(self, resource: Resource, of: Callable[[Json], R | None], *, cached: bool = False, **scope: str) -> list[R] | None:
        try:
            return [record async for record in records(self.doors.kube, resource, of, cached=cached, **scope)]
        except ApiError as error:
            self.unread.append(clipped(str(error), _LONGEST))
            return None

    async def _read_class(self, claim: Claim) -> None:
        def of(obj: Json) -> Class:
            if (obj["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true":
                self.default = obj["metadata"]["name"]
            return Class.of(obj)

        self.classes = await self._list(CLASSES, of)
        self.class_ = next((one for one in self.classes or () if one.name == claim.class_name), None)
        self.driver = self.class_.provisioner if self.class_ else claim.provisioner if self.classes is None else ""

    async def _read_nodes(self, claim: Claim) -> None:
        only = f"metadata.name={claim.selected_node}" if claim.selected_node else ""
        self.nodes = await self._list(NODES, Node.of, cached=True, field_selector=only)
        self.registered = await self._list(CSI_NODES, self._registered, cached=True, field_selector=only)
        published = f"{names.CAPACITY_DRIVER_LABEL}={self.driver}"
        found = await self._list(CAPACITIES, CapacityRecord.of, label_selector=published)
        self.free = None if found is None else [one for one in found if one.class_name == claim.class_name]

    def _registered(self, csi_node: Json) -> str | None:
        there = {str(one.get("name")) for one in (csi_node.get("spec") or {}).get("drivers") or ()}
        self.drivers |= there
        return str(csi_node["metadata"]["name"]) if self.driver in there else None

    async def _read_sidecars(self, claim: Claim) -> None:
        kind, resource = (names.POD, PODS) if claim.selected_node else (names.DAEMON_SET, DAEMON_SETS)

        def of(obj: Json) -> list[Sidecar]:
            if kind == names.POD and not reading.works_on(obj):
                return []
            found = reading.provisioners(obj, kind, drivers={self.driver, *self.drivers}, image=reading.OUR_IMAGE)
            return [Sidecar(one, obj) for one in found if not one.central]

        listed = await self._list(resource, of, field_selector=f"spec.nodeName={claim.selected_node}" if claim.selected_node else "")
        if listed is not None:
            every = [one for some in listed for one in some]
            may = [one for one in every if one.found.serves(self.driver) is not False]
            named = [one for one in may if one.found.serves(self.driver)] or may
            self.sidecars = [one for one in named if one.provisions] or named

    # --- what is told of it -------------------------------------------------------------------------------------------

    def _tell(self, claim: Claim) -> None:
        if self.class_:
            binds = "when a pod that uses the claim is scheduled" if self._is_late else "at once"
            self.rows["class"] = f"{claim.class_name}, of {self.class_.provisioner}; binds {binds}"
        elif self.classes is not None:
            self.rows["class"] = f"{claim.class_name} does not exist" if claim.class_name else "none is named"
        if self.pods is not None:
            self.rows["pod"] = [f"{pod['metadata']['name']}: {_scheduling(pod)}" for pod in self.pods[:3]] or "none uses the claim"
        if claim.selected_node:
            most = next((self._most(node) for node in self.nodes or ()), None)
            about = [*self._hindrances(claim.selected_node), *([] if most is None else [f"has {size(most)} free"])]
            self.rows["node"] = f"{claim.selected_node} is selected{''.join(f', {why}' for why in about)}"
        elif self.registered:
            blocked = [f"{name} {' and '.join(why)}" for name in self.registered if (why := self._hindrances(name, claim))]
            free = f"{len(self.registered) - len(blocked)} of {len(self.registered)} could take it"
            self.rows["nodes"] = f"{free}; {first_few(blocked)}" if blocked else free
        elif self.registered is not None:
            self.rows["nodes"] = f"{self.driver} is registered on none"
        if self.sidecars is not None:
            ours = [f"{one.found.workload} {one.state}{'' if one.provisions else '; report only'}" for one in self.sidecars[:3]]
            on = f" on {claim.selected_node}" if claim.selected_node else ""
            self.rows["sidecar"] = ours or f"none was found for {self.driver}{on}"
            if any(one.flags.get("watch-scope") == LABELLED for one in self.sidecars):
                is_ours = {one.name for one in self.classes or () if one.provisioner == self.driver}.__contains__
                if wrong := why_wrong(self.obj, driver=self.driver, is_ours=is_ours):
                    self.rows["label"] = f"{wrong}; {REMEDY}"
        if shown := self._latest():
            self.rows["event"] = [self._event(event) for event in shown]

    def _hindrances(self, name: str, claim: Claim | None = None) -> list[str]:
        """What keeps volumes from a node. Space and topology count for a claim for which no node is selected yet."""
        node = next((one for one in self.nodes or () if one.name == name), None)
        if node is None:
            return ["which does not exist"] if self.nodes is not None and claim is None else []
        found = ["is cordoned"] if node.cordoned and (claim is None or self._is_late or self._heeds_cordons) else []
        found += [] if node.ready == "True" else ["is not Ready"]
        if claim is None or self.class_ is None:
            return found
        allowed = [all(node.labels.get(key) in values for key, values in term.items()) for term in self.class_.allowed]
        found += [] if any(allowed) or not allowed else ["is left out by allowedTopologies"]
        most = self._most(node)
        return found + ([f"has {size(most)} free"] if most is not None and most < (claim.requested or 0) else [])

    @property
    def _is_late(self) -> bool:
        """It waits for a pod."""
        return self.class_ is not None and self.class_.binding_mode != IMMEDIATE

    @property
    def _heeds_cordons(self) -> bool:
        """The scheduler puts no pod on a cordoned node. A sidecar makes volumes there all the same, unless this flag says otherwise."""
        return any(one.flags.get("node-drain-policy", IGNORE) != IGNORE for one in self.sidecars or ())

    def _most(self, node: Node) -> int | None:
        """The largest volume that is published for the node; None: nothing is."""
        labels = Segment.of(node.labels)
        here = [one for one in self.free or () if one.node_topology is not None and Segment.of(one.node_topology).within(labels)]
        known = [most for one in here if (most := one.capacity if one.maximum is None else one.maximum) is not None]
        return max(known, default=None)

    def _latest(self) -> list[Json]:
        """The latest warnings; where there are none, the latest word of somebody else than Kubernetes, which waits for others to act."""
        events = sorted(self.events or (), key=_at)
        warnings = [one for one in events if one.get("type") == names.WARNING]
        return warnings[-_MOST_EVENTS:] or [one for one in events if _component(one) != _CONTROLLER][-1:]

    def _event(self, event: Json) -> str:
        since, host = age(self.now - (timestamps.to_seconds(_at(event)) or self.now)), (event.get("source") or {}).get("host")
        by = f"{_component(event).partition('_')[0]}{f' on {host}' if host else ''}"
        return f"{event.get('reason')} ({since} ago, {by}): {clipped(str(event.get('message') or ''), _LONGEST)}"

    async def _tell_decision(self, claim: Claim) -> None:
        """The last decision of the selected node's sidecar, where it shows its pages to more than its own pod."""
        asked = next((one for one in self.sidecars or () if claim.selected_node and one.debug_port and one.is_ready), None)
        if asked is None:
            return
        pod = asked.found
        try:
            where = (pod.namespace, pod.name, asked.debug_port, "/debug/decisions")
            page = json.loads(await self.doors.kube.pod_page(*where, query={"key": claim.uid}))
            for one in [one for one in page if one["room"] == "provisioning"][-1:]:
                said = f"{one['decision']} {age(self.now - float(one['time']))} ago: {one['why']}"
                self.rows["decision"] = clipped(said, _LONGEST)
        except (ApiError, ValueError, TypeError, KeyError) as error:
            self.unread.append(f"the last decision of pod {pod.namespace}/{pod.name}: {clipped(str(error), _LONGEST)}")

    # --- what to do ---------------------------------------------------------------------------------------------------

    def bound(self, claim: Claim) -> tuple[Status, str]:
        if self.volumes is None:
            return Status.UNKNOWN, f"see whether it is there: kubectl get pv {claim.volume_name}"
        if not self.volumes:
            self.rows["volume"] = f"{claim.volume_name} does not exist"
            return (
                Status.FALSE,
                "restore the PersistentVolume, whose data may still be on its node; delete the claim only if nobody needs it",
            )
        (volume,) = self.volumes
        nodes = self.nodes or []
        reached = [node.name for node in nodes if any(term.matches(node.name, node.labels) for term in volume.affinity or ())]
        on = reached or [node.name for node in nodes if node.name == maker_of(volume)]
        place = f"on {first_few(on)}" if on else "on no node that is there" if self.nodes is not None else "on a node that is not known"
        self.rows["volume"] = f"{volume.name} of {volume.driver}, {place}"
        if (self.obj.get("status") or {}).get("phase") != "Bound":
            return Status.UNKNOWN, f"the claim names its volume and is not bound to it yet; see kubectl describe pv {volume.name}"
        if not on and self.nodes is not None:
            return Status.FALSE, f"no node reaches the volume: see `{program()} explain volumes`, and restore the node's labels or the node"
        return Status.TRUE, "nothing: the claim has its volume"

    def why_not(self, claim: Claim) -> tuple[Status, str]:
        """The first thing that keeps the claim from its volume decides what to do."""
        again = f"make the claim anew (kubectl delete pvc -n {claim.namespace} {claim.name})"
        if claim.deleting:
            return Status.FALSE, "it is being deleted: it goes when no pod uses it any more, and no volume is made for it"
        if self.classes is not None and self.class_ is None:
            if not claim.class_name:
                hint = f"; the default is {self.default}" if self.default else ""
                return Status.FALSE, f"name a class (storageClassName) and {again}, or make a PersistentVolume for it{hint}"
            known = [one.name for one in self.classes]
            meant = closest(claim.class_name, known)
            hint = f"{meant} may be meant" if meant else f"there are {first_few(known)}" if known else "there is none at all"
            return Status.FALSE, f"{again} with a class that exists ({hint}), or create StorageClass {claim.class_name}"
        if self.sidecars and not any(one.provisions for one in self.sidecars):
            return Status.UNKNOWN, f"the sidecars only report here: see the log of {self.driver}'s own provisioner"
        return self._on_selected(claim, again) if claim.selected_node else self._anywhere(claim, again)

    def _on_selected(self, claim: Claim, again: str) -> tuple[Status, str]:
        node = claim.selected_node
        if self.nodes == []:
            return Status.FALSE, f"bring node {node} back; or, if it is gone for good, delete the pod that uses the claim, and {again}"
        if (self.sidecars == [] or self.registered == []) and not self._is_refused(claim):
            return Status.FALSE, self._nobody(f"on {node}")
        if self.sidecars and not any(one.is_ready for one in self.sidecars):
            pod = self.sidecars[0].found
            return Status.FALSE, f"see why it is not ready: kubectl describe pod -n {pod.namespace} {pod.name}"
        if self._is_refused(claim):
            return Status.FALSE, self._mend(claim, again)
        if "is cordoned" in self._hindrances(node) and self._heeds_cordons:
            return Status.FALSE, f"kubectl uncordon {node}, or let the pod that uses the claim run elsewhere"
        return Status.UNKNOWN, f"nothing is wrong: the sidecar of {node} makes the volume; if that lasts, see its log"

    def _anywhere(self, claim: Claim, again: str) -> tuple[Status, str]:
        if self.pods == []:
            return Status.UNKNOWN, "nothing is wrong: the volume is made when a pod that uses the claim is scheduled; create that pod"
        if (self.registered == [] or self.sidecars == []) and not self._is_refused(claim):
            return Status.FALSE, self._nobody("in this cluster")
        why = {name: self._hindrances(name, claim) for name in self.registered or ()}
        if why and all(why.values()):
            return Status.FALSE, self._none_can(claim, why, again)
        if self.sidecars and not any(one.is_ready for one in self.sidecars):
            one = self.sidecars[0].found
            return Status.FALSE, f"see why no pod of it is ready: kubectl describe daemonset -n {one.namespace} {one.name}, and its pods"
        if self.pods and all(map(_unschedulable, self.pods)):
            return Status.FALSE, "mend what keeps the pod from being scheduled: above is what the scheduler says"
        if self._is_refused(claim):
            return Status.FALSE, self._mend(claim, again)
        return Status.UNKNOWN, "nothing is wrong that the cluster shows; ask again in a minute"

    def _nobody(self, where: str) -> str:
        ours = f"if this program makes its volumes: `{program()} check --driver {self.driver}`"
        return f"see why nobody makes volumes of {self.driver} {where}; {ours}; else see the log of its own provisioner"

    def _none_can(self, claim: Claim, why: Mapping[str, Sequence[str]], again: str) -> str:
        if all(any(one.startswith("has ") for one in some) for some in why.values()):
            most = max(self._most(node) or 0 for node in self.nodes or () if node.name in why)
            less = f"{again} with {size(most)} at most, " if most else ""
            return f"{less}free space on a node, or add one: none has {size(claim.requested or 0)}"
        if cordoned := [name for name, some in why.items() if some == ["is cordoned"]]:
            return f"kubectl uncordon {cordoned[0]}{', or another that is only cordoned' if cordoned[1:] else ''}, or add a node"
        return "mend what keeps the volume from each node, or add one"

    def _is_refused(self, claim: Claim) -> bool:
        """By the driver or its sidecar, and not on a node that the claim has left since."""
        hosts = ("", claim.selected_node)
        warnings = [one for one in self._latest() if one.get("type") == names.WARNING and _component(one) != _CONTROLLER]
        return any(not claim.selected_node or ((one.get("source") or {}).get("host") or "") in hosts for one in warnings)

    def _mend(self, claim: Claim, again: str) -> str:
        if many := [mode for mode in claim.access_modes if mode in _MANY_NODES]:
            return f"{again} with ReadWriteOnce: a volume of one node can hardly be {many[0]}; the event has the driver's own words"
        return f"mend what the event names, in class {claim.class_name} or in the claim; it is tried again by itself"


def _whole(obj: Json) -> Json:
    return obj


def _uses(pod: Json, claim: Claim) -> bool:
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return False
    volumes: Sequence[Any] = (pod.get("spec") or {}).get("volumes") or ()
    by_name = any((one.get("persistentVolumeClaim") or {}).get("claimName") == claim.name for one in volumes)
    return by_name or (claim.owner is not None and claim.owner.uid == pod["metadata"].get("uid"))


def _scheduling(pod: Json) -> str:
    if node := (pod.get("spec") or {}).get("nodeName"):
        return f"scheduled to {node}"
    said = _unschedulable(pod)
    return f"not scheduled: {said}" if said else "not scheduled yet"


def _unschedulable(pod: Json) -> str:
    """The scheduler's words; empty: it has said nothing. What preemption would do helps nobody here."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    said = next((one.get("message") for one in conditions if one.get("type") == "PodScheduled" and one.get("status") == "False"), None)
    return clipped(str(said or "").partition(" preemption: ")[0].removesuffix(" no new claims to deallocate,"), _LONGEST)


def _component(event: Json) -> str:
    return str((event.get("source") or {}).get("component") or event.get("reportingComponent") or "")


def _at(event: Json) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")
