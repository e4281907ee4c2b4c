"""Finds out which volumes the pods of this node mount, whatever node a PersistentVolume names: what a pod mounts here lies here.

Most of them are in the watch. Of each other claim it is asked once whose driver's its volume is: neither the volume of a bound claim nor
the driver of a volume ever changes. Those of this driver are read again every minute, for they may be deleted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sidecar.drain.facts.asking_io import Asking
from sidecar.drain.facts.snapshot import CLAIM, unread_key
from sidecar.kube.api import CLAIMS, VOLUMES, KubeApi
from sidecar.model.nodes import Pod
from sidecar.model.objects import Claim, Volume

# Questions in one look at a node that nobody empties. A process that starts on a full node asks for many claims, and others need the
# client's rate as well.
_SOME: Final = 10


@dataclass(frozen=True, slots=True)
class Mounts:
    ours: tuple[Volume, ...]
    """Of this driver."""
    foreign: tuple[Volume, ...]
    """Of other drivers."""


class MountedVolumes:
    """One per process."""

    def __init__(self, kube: KubeApi, asking: Asking, driver: str) -> None:
        self._kube = kube
        self._asking = asking
        self._driver = driver
        self._others: dict[tuple[str, str], Volume] = {}
        """By uid of a pod and full name of a claim: volumes of other drivers."""

    async def of(self, pods: Iterable[Pod], watched: Mapping[str, Volume], *, observed: bool) -> Mounts:
        """`watched`: by full name of their claims, volumes of this driver that are bound. `observed`: somebody empties the node."""
        named = {(pod.uid, f"{pod.namespace}/{claim}"): pod for pod in pods if not pod.ended for claim in pod.claims}
        self._others = {key: volume for key, volume in self._others.items() if key in named}
        ours = {claim: watched[claim] for _, claim in named if claim in watched}
        unasked = []
        for key, pod in sorted(named.items(), key=lambda item: item[0]):
            if key[1] in ours or key in self._others:
                continue
            if not observed and self._asking.asked >= _SOME:
                unasked.append(key[1])
                continue
            found = await self._volume_of(key[1], pod)
            if found is not None and found.driver == self._driver:
                ours[key[1]] = found
            elif found is not None:
                self._others[key] = found
        if unasked:
            self._asking.ignorance.append(f"which volumes {len(set(unasked))} claims of pods of this node have is not asked yet")
        foreign = {volume.name: volume for volume in self._others.values() if volume.driver}
        return Mounts(tuple({volume.name: volume for volume in ours.values()}.values()), tuple(foreign.values()))

    async def _volume_of(self, full_name: str, pod: Pod) -> Volume | None:
        namespace, _, name = full_name.partition("/")
        what = unread_key(CLAIM, full_name)
        found = await self._asking.ask(what, lambda: self._kube.get(CLAIMS, name, namespace=namespace))
        if found is None:
            self._doubt(what, f"{what} does not exist, and pod {pod.full_name} runs with it: which volume it mounts is not known", pod)
            return None
        claim = Claim.of(found)
        if not claim.volume_name:
            return None  # nothing can be mounted yet
        about = f"volume {claim.volume_name}"
        obj = await self._asking.ask(about, lambda: self._kube.get(VOLUMES, claim.volume_name))
        if obj is None:
            self._doubt(about, f"{about} does not exist, and pod {pod.full_name} runs with it: where its data is is not known", pod)
        return None if obj is None else Volume.of(obj)

    def _doubt(self, what: str, sentence: str, pod: Pod) -> None:
        """A pod that waits for a claim that nobody makes has mounted nothing. What was refused is told already."""
        if pod.phase == "Running" and what not in self._asking.unread:
            self._asking.ignorance.append(sentence)
