"""Lists, once, what the judgement of one node or of all nodes needs, for whoever asks from outside (`explain`, `node`). Writes nothing.

What cannot be read is in `ignorance` and never a yes. Beside that it reads what the nodes' own sidecars say: reports and conditions.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from sidecar.drain.policy import CLAIM, CLASS, NAMESPACE
from sidecar.drain.snapshot import Own, Raw, Snapshot, build, unread_of
from sidecar.drain.where import maker_of
from sidecar.kube import api
from sidecar.kube.api import KubeApi, Resource, find, records
from sidecar.kube.errors import ApiError, NotFound
from sidecar.model import names
from sidecar.model.nodes import Node, Pod, SnapshotContent
from sidecar.model.objects import Attachment, Claim, Class, Json, Notes, Volume, notes_of
from sidecar.model.topology import Term

K = TypeVar("K")
R = TypeVar("R")

_OPTIONAL: Final = (api.SNAPSHOT_CONTENTS, api.DRAIN_REPORTS)  # kinds that a cluster may do without
_WITH_POLICIES: Final = ((CLAIM, api.CLAIMS), (CLASS, api.CLASSES), (NAMESPACE, api.NAMESPACES))
_LONG: Final = ("pods", "blockers", "conditions")  # lists in a report that nobody asks for here


class Cluster:
    """What was listed. `look` fills it; then `snapshot` picks what concerns one node, so that many nodes cost little more than one."""

    def __init__(self, kube: KubeApi, *, now: float) -> None:
        self._kube, self.at = kube, now
        self.ignorance: list[str] = []
        self.unread_reports = ""  # why the reports of the nodes' own sidecars are not known
        self.nodes: dict[str, Node] = {}
        self.volumes: dict[str, Volume] = {}
        self.classes: tuple[Class, ...] = ()
        self.reports: dict[str, Json] = {}  # by name, the status, which anybody may have edited
        self.conditions: dict[str, dict[str, Json]] = {}  # by node, the conditions in which sidecars say their verdicts, by their type
        self._failed: set[Resource] = set()
        self._registered: dict[str, dict[str, tuple[str, ...]]] = {}  # by node and driver, the keys of its topology

    async def look(self, node: str = "") -> "Cluster":
        """At all nodes, or at that one alone. Raises NotFound where it does not exist; whatever else fails is in `ignorance`."""
        one = self._node(await self._kube.get(api.NODES, node)) if node else None
        listed = await self._list(api.NODES, self._node)
        self.nodes = {each.name: each for each in (*listed, *((one,) if one else ()))}
        # Claims before volumes: what a claim of this list is bound to is in a later list, or it is gone.
        self._claims = {claim.full_name: claim for claim in await self._list(api.CLAIMS, Claim.of)}
        self.volumes = {volume.name: volume for volume in await self._list(api.VOLUMES, Volume.of) if volume.driver}
        self._registered = dict(await self._list(api.CSI_NODES, _registration))
        self._pods = await self._list(api.PODS, _with_volumes)
        self._contents = await self._list(api.SNAPSHOT_CONTENTS, SnapshotContent.of)
        self._attachments = _by([(item.node, item) for item in await self._list(api.ATTACHMENTS, Attachment.of)])
        self.classes = await self._list(api.CLASSES, Class.of)
        said = await self._list(api.NAMESPACES, lambda obj: (obj["metadata"]["name"], notes_of(obj["metadata"].get("annotations"))))
        self._namespaces: Mapping[str, Notes] = dict(said)
        self._sort()
        await self._read_reports(node)
        return self

    async def _list(self, resource: Resource, of: Callable[[Json], R | None]) -> tuple[R, ...]:
        """Those that could be read before something failed."""
        found: list[R] = []
        try:
            async for made in records(self._kube, resource, of):
                found.append(made)
        except ApiError as error:
            if not (isinstance(error, NotFound) and resource in _OPTIONAL):
                self._failed.add(resource)
                why = "the API server does not serve them" if isinstance(error, NotFound) else str(error)
                self.ignorance.append(f"{resource}: {why}")
        return tuple(found)

    def _node(self, obj: Json) -> Node:
        ours = (f"/{names.DRAIN_READY}", f"/{names.RETIRE_READY}")
        found = [item for item in (obj.get("status") or {}).get("conditions") or () if str(item.get("type")).endswith(ours)]
        self.conditions[obj["metadata"]["name"]] = {item["type"]: item for item in found}
        return Node.of(obj)

    async def _read_reports(self, node: str) -> None:
        """No verdict from outside depends on them, so it is no ignorance if they cannot be read: it is told beside."""
        try:
            for driver in self.drivers(node) if node else ():
                if (stored := await find(self._kube, api.DRAIN_REPORTS, names.drain_report(node, driver))) is not None:
                    self.reports |= [_slim(stored)]
            if not node:
                self.reports = dict([pair async for pair in records(self._kube, api.DRAIN_REPORTS, _slim)])
        except NotFound:
            return
        except ApiError as error:
            self.unread_reports = f"{api.DRAIN_REPORTS}: {error}"

    # --- what concerns one node -------------------------------------------------------------------------------------------

    def _sort(self) -> None:
        self._by_label = _by((pair, node) for node in self.nodes.values() for pair in node.labels.items())
        self._reached: dict[tuple[Term, ...], tuple[str, ...]] = {}
        alike = _by(((volume.driver, self.nodes_of(volume)), volume) for volume in self.volumes.values())
        self._of_none = _by((driver, volume) for (driver, on), volumes in alike.items() if not on for volume in volumes)
        """By driver: of these it depends on the node whether they may be there."""
        self._on = _by(((name, driver), volumes) for (driver, on), volumes in alike.items() for name in on)
        """By node and driver, in lists of volumes that the same nodes have."""
        self._users = _by((claim, pod) for pod in self._pods for claim in pod.claim_names)
        self._here = _by((pod.node, pod) for pod in self._pods)
        self._selected = _by((claim.selected_node, claim) for claim in self._claims.values() if claim.selected_node)
        sources = {(volume.driver, volume.handle): volume for volume in self.volumes.values()}
        self._snapshots = _by(
            ((name, each.driver), each)
            for each in self._contents
            for name in self._places(each, sources.get((each.driver, each.source_handle)))
        )  # By node and driver. Those of which nothing says where they are stand under the empty name.
        self._there = _by([*self._on, *self._snapshots])
        alone = {driver for driver, on in alike if len(on) == 1} | {volume.driver for volume in self.volumes.values() if maker_of(volume)}
        places = Counter(self._segment(node, driver) for node, drivers in self._registered.items() for driver in drivers)
        self._local = alone | {driver for (driver, _), count in places.items() if count == 1}
        """Drivers with a volume, or room for one, that one node alone has. What every node of a zone reaches no drain strands."""

    def _segment(self, node: str, driver: str) -> tuple[str, tuple[str, ...]]:
        labels = self.nodes[node].labels if node in self.nodes else {}
        return driver, tuple(labels.get(key, "") for key in self._registered[node][driver])

    def _places(self, content: SnapshotContent, source: Volume | None) -> Iterable[str]:
        if content.managed_by:
            return (content.managed_by,)
        return (self.nodes_of(source) if source else ()) or ("",)

    def nodes_of(self, volume: Volume) -> tuple[str, ...]:
        """Those that its node affinity allows, and the one that made it."""
        affinity, maker = volume.affinity or (), maker_of(volume)
        if affinity not in self._reached:
            self._reached[affinity] = tuple(sorted({name for term in affinity for name in self._matching(term)}))
        found = self._reached[affinity]
        return (*found, maker) if maker in self.nodes and maker not in found else found

    def _matching(self, term: Term) -> Iterable[str]:
        first = next((item for item in term.requirements if item.operator == "In"), None)
        among = self.nodes.values() if first is None else [each for value in first.values for each in self._by_label[first.key, value]]
        return (node.name for node in among if term.matches(node.name, node.labels))

    def _may_be_on(self, node: str, volume: Volume) -> bool:
        """Of a volume that no node reaches: nothing contradicts it."""
        there = self.nodes.get(node)
        return there is not None and (volume.affinity is None or any(term.may_match(there.name, there.labels) for term in volume.affinity))

    def drivers(self, node: str, named: str = "") -> tuple[str, ...]:
        """Those of which something is, or could be, on that node alone; and the one that somebody has named, if it has anything there."""
        conditions = self.conditions.get(node, {})
        found = {
            driver
            for driver in (*self._registered.get(node, ()), *self._there[node])
            if driver in self._local or driver == named or names.condition(driver, names.RETIRE_READY) in conditions
        }
        return tuple(sorted(found | {claim.provisioner for claim in self._selected[node] if not claim.volume_name} - {""}))

    def knows(self, driver: str) -> bool:
        """Anything names it."""
        return driver in {each.driver for each in self.volumes.values()} | {class_.provisioner for class_ in self.classes}

    def snapshot(self, node: str, driver: str, own: Own) -> Snapshot:
        selected, nowhere = self._selected[node], [volume for volume in self._of_none[driver] if self._may_be_on(node, volume)]
        bound = {claim.volume_name for claim in selected} - {""}
        volumes = [*nowhere, *(volume for some in self._on.get((node, driver), ()) for volume in some)]
        volumes += [volume for name in bound - {volume.name for volume in volumes} if (volume := self.volumes.get(name))]
        matter = {node} | {name for volume in volumes for name in (*self.nodes_of(volume), maker_of(volume))}
        # What no node reaches may be there because of a label that others have.
        nodes = self.nodes.values() if nowhere else [self.nodes[name] for name in sorted(matter & self.nodes.keys())]
        raw = Raw(
            at=self.at,
            nodes=tuple(nodes),
            volumes=tuple(volumes),
            claims=tuple({claim.uid: claim for claim in (*self._claims_of(volumes).values(), *selected)}.values()),
            pods=tuple({pod.uid: pod for pod in (*self._here[node], *self._users_of(volumes))}.values()),
            classes=self.classes,
            namespaces=self._namespaces,
            contents=(*self._snapshots.get((node, driver), ()), *self._snapshots.get(("", driver), ())),
            attachments=tuple(self._attachments[node]),
            others_known=api.NODES not in self._failed,
            gone=frozenset() if api.VOLUMES in self._failed else frozenset(bound - self.volumes.keys()),
            unlisted=self._unlisted,
            ignorance=tuple(self.ignorance),
        )
        return build(raw, node, driver, own)

    def anywhere(self, driver: str, own: Own) -> Snapshot:
        """All volumes of the driver as if they were on one node that has no pod: whoever uses them is elsewhere."""
        volumes = tuple(volume for volume in self.volumes.values() if volume.driver == driver)
        users = {pod.uid: pod for pod in self._users_of(volumes)}.values()
        return Snapshot(
            now=self.at,
            driver=driver,
            node_name="",
            node=None,
            own=own,
            volumes=volumes,
            claims=self._claims_of(volumes),
            pods=tuple(pod for pod in users if pod.ended),
            claimants=tuple(pod for pod in users if not pod.ended),
            attached=frozenset(item.volume for some in self._attachments.values() for item in some),
            classes={class_.name: class_ for class_ in self.classes},
            namespaces=self._namespaces,
            unread=unread_of(self._unlisted, volumes),
        )

    @property
    def _unlisted(self) -> frozenset[str]:
        return frozenset(kind for kind, resource in _WITH_POLICIES if resource in self._failed)

    def _claims_of(self, volumes: Iterable[Volume]) -> dict[str, Claim]:
        return {volume.claim_name: self._claims[volume.claim_name] for volume in volumes if volume.claim_name in self._claims}

    def _users_of(self, volumes: Iterable[Volume]) -> Iterable[Pod]:
        return (pod for volume in volumes for pod in self._users.get(volume.claim_name, ()))


def _by(pairs: Iterable[tuple[K, R]]) -> defaultdict[K, list[R]]:
    found: defaultdict[K, list[R]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return found


def _registration(obj: Json) -> tuple[str, dict[str, tuple[str, ...]]]:
    """A driver without a topology has no volumes that one node alone reaches."""
    drivers = (obj.get("spec") or {}).get("drivers") or ()
    return obj["metadata"]["name"], {each["name"]: tuple(each["topologyKeys"]) for each in drivers if each.get("topologyKeys")}


def _with_volumes(obj: Json) -> Pod | None:
    pod = Pod.of(obj)
    return pod if pod.claims or pod.inline else None


def _slim(report: Json) -> tuple[str, Json]:
    status = report.get("status")
    slim = {key: value for key, value in status.items() if key not in _LONG} if isinstance(status, dict) else {}
    return report["metadata"]["name"], slim
