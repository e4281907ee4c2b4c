"""Finds out which volumes the pods of this node mount, whatever node a PersistentVolume names: what a pod mounts here lies here.
So does what is attached to this node, and a volume that no label places here and whose last pod ran here, as far as this process has
seen, or an earlier one has told in the report.

Most of them are in the watch. Of each other claim it is asked once whose driver's its volume is: neither the volume of a bound claim nor
the driver of a volume ever changes. Those of this driver are read again every minute, for they may be deleted.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sidecar.drain.facts import mounts_unknown
from sidecar.drain.facts.asking_io import Asking
from sidecar.drain.facts.snapshot import CLAIM, unread_key
from sidecar.kube.api import CLAIMS, VOLUMES, KubeApi, records
from sidecar.model.nodes import Pod
from sidecar.model.objects import Claim, Json, Volume

# Questions in one look at a node that nobody empties. A process that starts on a full node asks for many claims, and others need the
# client's rate as well.
_SOME: Final = 10
# Claims of one namespace: of more of them a list costs less. A pod may name thousands that nobody makes, and each would be asked for
# every minute.
_MANY: Final = 50
_WAITS: Final = "Pending"


@dataclass(frozen=True, slots=True)
class Mounts:
    ours: tuple[Volume, ...]
    """Of this driver."""
    foreign: tuple[Volume, ...]
    """Of other drivers."""
    complete: bool = True
    """False: some have not been asked for yet, and the next look asks for more."""


class MountedVolumes:
    """One per process."""

    def __init__(self, kube: KubeApi, asking: Asking, driver: str) -> None:
        self._kube = kube
        self._asking = asking
        self._driver = driver
        self._others: dict[tuple[str, str], Volume] = {}
        """By uid of a pod and full name of a claim, or by name if it is attached: volumes of other drivers."""
        self._without_place: dict[str, Volume] = {}
        """Of this driver, by name: volumes that no label places here, and that are here, or were here last."""
        self._unanswered: dict[tuple[str, str], Pod] = {}
        """By uid and claim: pods of whose claims it is not known yet what they mount. Their end answers nothing."""
        self._bound_to: dict[str, str] = {}
        """By full name of such a claim: the volume that it names."""
        self._told_before: frozenset[str] = frozenset()
        """Names of volumes that an earlier process found here, and of which it has not been asked yet whether a label places them."""
        self._told_hidden = False

    def recall(self, volumes: Iterable[str], *, hidden: bool) -> None:
        """An earlier process has found these here, by name. Of one without node affinity nothing else tells where it is.

        `hidden`: nor does it of the others, whatever node they name: pods of this node have mounted them."""
        self._told_before, self._told_hidden = frozenset(volumes), hidden

    @property
    def unconfirmed(self) -> frozenset[str]:
        """Names of hidden volumes that an earlier process has told, and that could not be read yet."""
        return self._told_before if self._told_hidden else frozenset()

    async def of(
        self,
        pods: Iterable[Pod],
        watched: Mapping[str, Volume],
        *,
        attached: Iterable[str] = (),
        elsewhere: Iterable[Pod] = (),
        is_placed: Callable[[Volume], bool] = lambda volume: volume.affinity is not None,
        observed: bool,
    ) -> Mounts:
        """`watched`: by full names of claims, volumes of this driver that are bound. `attached`: PersistentVolumes that are attached here.
        `elsewhere`: pods of other nodes, as far as they are known. `is_placed`: labels place the volume here, or who made it.
        `observed`: somebody empties the node."""
        named = {(pod.uid, claim): pod for pod in pods if not pod.ended for claim in pod.claim_names} | self._unanswered
        by_name, attached = {volume.name: volume for volume in watched.values()}, frozenset(attached)
        unseen = {("", name) for name in attached if name not in by_name}
        self._others = {key: volume for key, volume in self._others.items() if key in named or key in unseen}
        known = {claim: watched[claim] for _, claim in named if claim in watched}
        known |= {name: by_name[name] for name in attached & by_name.keys()}
        unknown = {key: pod for key, pod in (named | dict.fromkeys(unseen)).items() if key[1] not in known and key not in self._others}
        asked, complete = await self._ask_about(unknown, observed=observed)
        mounted = {volume.name: volume for volume in (*known.values(), *asked)}
        foreign = {volume.name: volume for volume in self._others.values() if volume.driver}
        await self._remember(by_name, is_placed)
        here = {**mounted, **await self._left_here(mounted, by_name, elsewhere)}
        self._without_place = {name: volume for name, volume in here.items() if not is_placed(volume)}
        return Mounts(tuple(here.values()), tuple(foreign.values()), complete=complete)

    async def _ask_about(self, unknown: Mapping[tuple[str, str], Pod | None], *, observed: bool) -> tuple[tuple[Volume, ...], bool]:
        """Those of this driver, and whether all could be asked about. By uid of a pod and claim the pod, by name what is attached."""
        ours: dict[str, Volume] = {}
        listed = await self._bound_in(unknown)
        unasked, unanswered = set[str](), dict[tuple[str, str], Pod]()
        for key, pod in sorted(unknown.items(), key=lambda item: item[0]):
            name = key[1]
            if name in ours:
                continue
            if not observed and self._asking.asked >= _SOME:
                unasked.add(name)
                unanswered |= {} if pod is None else {key: pod}
                continue
            found = await (self._volume(name) if pod is None else self._volume_of(name, pod, listed.get(pod.namespace)))
            if pod is not None and self._is_open(name):
                unanswered[key] = pod
            if found is not None and found.driver == self._driver:
                ours[name] = found
            elif found is not None:
                self._others[key] = found
        self._unanswered = unanswered
        open_claims = {claim for _, claim in unanswered}
        self._bound_to = {claim: volume for claim, volume in self._bound_to.items() if claim in open_claims}
        if unasked:
            self._asking.ignorance.append(f"what {len(unasked)} claims and attachments of this node are for is not asked yet")
        return tuple(ours.values()), not unasked

    async def _remember(self, by_name: Mapping[str, Volume], is_placed: Callable[[Volume], bool]) -> None:
        """Each is asked about once, unless it cannot be read."""
        for name in sorted(self._told_before if self._told_hidden else self._told_before - by_name.keys()):
            found = by_name.get(name) or await self._volume(name)
            stays = found is not None and (found.affinity is None or (self._told_hidden and not is_placed(found)))
            if found is not None and found.driver == self._driver and stays:
                self._without_place[name] = found
        self._told_before = frozenset(name for name in self._told_before if f"volume {name}" in self._asking.unread)

    async def _left_here(self, mounted: Container[str], by_name: Mapping[str, Volume], elsewhere: Iterable[Pod]) -> Mapping[str, Volume]:
        """Of a volume that no label places here its last pod alone tells where it is. It is here until a pod runs with it elsewhere."""
        running = {claim for pod in elsewhere if pod.node and pod.phase == "Running" for claim in pod.claim_names}
        left: dict[str, Volume] = {}
        for name, volume in self._without_place.items():
            if name not in mounted and volume.claim_name not in running:
                found = by_name.get(name) or await self._volume(name)
                left |= {name: found or volume} if found is not None or f"volume {name}" in self._asking.unread else {}
        return left

    async def _bound_in(self, unknown: Mapping[tuple[str, str], Pod | None]) -> Mapping[str, Mapping[str, str]]:
        """By namespace of which much is asked: by full name of each of its claims the volume that it is bound to, or nothing."""
        wanted: dict[str, set[str]] = {}
        for (_, name), pod in unknown.items():
            if pod is not None:
                wanted.setdefault(pod.namespace, set()).add(name)
        found: dict[str, Mapping[str, str]] = {}
        for namespace in sorted(namespace for namespace, claims in wanted.items() if len(claims) > _MANY):
            listed = await self._asking.ask(f"claims of namespace {namespace}", lambda: self._listed(namespace))  # noqa: B023
            found |= {} if listed is None else {namespace: listed}
        return found

    async def _listed(self, namespace: str) -> Mapping[str, str]:
        def of(obj: Json) -> tuple[str, str]:
            claim, waits = Claim.of(obj), (obj.get("status") or {}).get("phase") == _WAITS
            return claim.full_name, "" if waits else claim.volume_name

        return dict([each async for each in records(self._kube, CLAIMS, of, namespace=namespace)])

    async def _volume_of(self, full_name: str, pod: Pod, listed: Mapping[str, str] | None) -> Volume | None:
        what = unread_key(CLAIM, full_name)
        bound_to = listed.get(full_name) if listed is not None else await self._read(what, full_name)
        if bound_to is None:
            self._doubt(what, mounts_unknown.claim_is_gone(full_name, pod), pod)
            return None
        self._bound_to[full_name] = bound_to
        if not bound_to:
            return None  # nothing can be mounted yet
        volume, about = await self._volume(bound_to), f"volume {bound_to}"
        if volume is None:
            self._doubt(about, mounts_unknown.volume_is_gone(bound_to, pod), pod)
        return volume

    async def _read(self, what: str, claim: str) -> str | None:
        """The volume that it is bound to; None: there is no such claim, or it could not be read."""
        namespace, _, name = claim.partition("/")
        found = await self._asking.ask(what, lambda: self._kube.get(CLAIMS, name, namespace=namespace))
        return None if found is None else Claim.of(found).volume_name

    def _is_open(self, claim: str) -> bool:
        """What the claim is bound to could not be read, or whose volume that is."""
        volume = self._bound_to.get(claim, "")
        return unread_key(CLAIM, claim) in self._asking.unread or f"volume {volume}" in self._asking.unread

    async def _volume(self, name: str) -> Volume | None:
        obj = await self._asking.ask(f"volume {name}", lambda: self._kube.get(VOLUMES, name))
        return None if obj is None else Volume.of(obj)

    def _doubt(self, what: str, sentence: str, pod: Pod) -> None:
        """What was refused is told already."""
        if mounts_unknown.has_mounted(pod) and what not in self._asking.unread:
            self._asking.ignorance.append(sentence)
