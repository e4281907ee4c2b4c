"""Carries out what `remains` decides under Cleanup: one request for each step, on condition of the version that was judged.

Before each one the thing itself is read and judged again, and then it is asked anew whether somebody still says that the disks do not come
back, and whether the machine is gone: lists are minutes old, and from a claim's deletion there is no way back. The Node comes last, and an
answer that is read late counts no more: the process may have been stopped meanwhile. Whatever is not as it was is left to the next look,
and so is what is refused, as by a policy of one namespace. Those have their turn after all others then, so that many of them keep nothing
else from being cleared away.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from sidecar.drain import machine_mark
from sidecar.drain.machine_mark import Machine
from sidecar.drain.node_loss import report
from sidecar.drain.node_loss.evidence import Evidence, Gone, is_announced
from sidecar.drain.node_loss.remains import Remain, RemainsView, Step, remains
from sidecar.drain.node_loss.report_io import Reports
from sidecar.drain.node_loss.spoken import No, Yes
from sidecar.drain.node_loss.surroundings_io import Surroundings
from sidecar.drain.node_loss.suspects import Suspect
from sidecar.drain.node_loss.things import ClaimThere, LostVolume, volume_of
from sidecar.drain.node_loss.unplaced_io import NEVER, UnplacedVolumes
from sidecar.kube.api import CLAIMS, MERGE_PATCH, VOLUMES, KubeApi, find, records
from sidecar.kube.errors import ApiError, Conflict, NotFound
from sidecar.kube.events.correlator import ObjectRef
from sidecar.kube.events.recorder import Recorder
from sidecar.model import names, timestamps
from sidecar.model.objects import Json

log = logging.getLogger(__name__)

MOST_AT_ONCE: Final = 50
"""Steps for one machine in one look: what must not happen is to show before much has."""
MOST_SECONDS: Final = 20.0
"""For the steps of one look at all machines: other losses wait to be told meanwhile. One step for each machine is taken all the same."""
FRESH: Final = 15.0
"""Seconds for which it counts what the API server has said of the Node, from the question on."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """How far it is."""

    again: float = NEVER
    """Seconds until there is more to do."""
    said: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By uid of a claim or volume: what becomes of it, and why it is still there."""
    refused: tuple[str, ...] = ()
    """What the API server has not allowed so far, until it is tried again."""


class Cleanup:
    """For one driver. Raises ApiError."""

    def __init__(
        self,
        kube: KubeApi,
        surroundings: Surroundings,
        reports: Reports,
        recorder: Recorder,
        unplaced: UnplacedVolumes,
        *,
        driver: str,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._kube = kube
        self._surroundings = surroundings
        self._reports = reports
        self._recorder = recorder
        self._unplaced = unplaced
        self._driver = driver
        self._clock, self._wall = clock, wall
        self._spent = 0.0
        """Seconds, in this look."""
        self._behind: dict[Machine, dict[str, str]] = {}
        """By uid: why a thing could not be cleared away when it had its turn, in the order of their turns."""

    def begin(self, machines: Iterable[Machine]) -> None:
        """A look at these."""
        self._spent = 0.0
        self._behind = {machine: self._behind[machine] for machine in machines if machine in self._behind}

    async def clear(self, view: RemainsView, done: list[Json], *, may_go_on: Callable[[], Awaitable[bool]]) -> Cleared:
        """Appends to `done` what it has done, also where it fails then. `may_go_on`: whether this process still has its turn."""
        loss = view.loss
        if not isinstance(loss, Gone) or not view.cleanup:
            return Cleared()
        view = replace(view, deleted=self._unplaced.deleted(lost.volume for lost in view.volumes))
        found = remains(view)
        steps = [item for item in found if item.step is not Step.NOTHING]
        said = {item.uid: item.why for item in found}
        behind = self._behind_now(loss.machine, {item.uid for item in steps})
        # Those that were in vain before come last, and first of them the one whose turn is the longest ago.
        order = {uid: number for number, uid in enumerate(behind, 1)}
        now = sorted((item for item in steps if not self._waits(item)), key=lambda item: order.get(item.uid, 0))
        if now and not (await may_go_on() and await self._all_say_so(loss)):
            return Cleared(said=MappingProxyType(said))
        fresh, began, first = {item.uid for item in now if item.uid not in behind}, self._clock(), True
        for item in now[:MOST_AT_ONCE]:
            if self._waits(item):
                continue  # the driver has not answered for another one
            late = self._spent + self._clock() - began >= MOST_SECONDS
            if late and not first:
                break
            first = False
            fresh.discard(item.uid)
            behind.pop(item.uid, None)
            try:
                judged = await self._judged(view, item)
                if judged is not None and not await self._is_lost(loss):
                    break
                if judged is not None and await self._perform(loss, *judged, may_go_on):
                    self._tell(loss, item, done)
                else:
                    behind[item.uid] = ""
            except (Conflict, NotFound):
                behind[item.uid] = ""  # it is not as it was judged
            except ApiError as error:
                behind[item.uid] = str(error)
        self._spent += self._clock() - began
        refused = tuple(f"{_named(item)}: {behind[item.uid]}" for item in steps if behind.get(item.uid))
        said |= {item.uid: why for item in steps if (why := behind.get(item.uid) or self._unplaced.why(item.uid))}
        more = any(item.uid in fresh and not self._waits(item) for item in now)
        again = 0.0 if more else self._unplaced.due_in(item.uid for item in steps)
        return Cleared(again, MappingProxyType(said), refused)

    def _waits(self, item: Remain) -> bool:
        return item.step is Step.EMPTY_VOLUME and self._unplaced.waits(item.uid)

    def _behind_now(self, machine: Machine, uids: Collection[str]) -> dict[str, str]:
        found = self._behind[machine] = {uid: why for uid, why in self._behind.get(machine, {}).items() if uid in uids}
        return found

    async def _is_lost(self, loss: Gone) -> bool:
        """Right before an effect."""
        return await self._is_still_said(loss) and await self._is_gone(loss)

    async def _is_gone(self, loss: Gone) -> bool:
        """By the API server's own word of this moment. A kubelet makes the Node before the CSINode, so the Node has the last word."""
        node, asked_at = loss.machine.node, self._clock()
        gone = await self._surroundings.has_csi_node(node) is False and await self._surroundings.node_uid(node) == ""
        return gone and self._clock() - asked_at <= FRESH

    async def _all_say_so(self, loss: Gone) -> bool:
        """Where the volumes are the evidence: the look had them from a cache, which may be older than an undo."""
        if loss.evidence is not Evidence.ANNOUNCED:
            return True
        found = [
            lost.leaving async for lost in records(self._kube, VOLUMES, lambda obj: volume_of(obj, self._driver)) if _is_of(lost, loss)
        ]
        return is_announced(loss.machine, found)

    async def _is_still_said(self, loss: Gone) -> bool:
        """A person stops what goes on by taking the word back, or, whatever was announced, by saying no."""
        machine = loss.machine
        said = report.said(await self._reports.find(machine.node), Suspect(machine.node, machine.uid), doubt=loss.doubt)
        return isinstance(said, Yes) if loss.evidence is Evidence.ACKNOWLEDGED else not isinstance(said, No)

    async def _judged(self, view: RemainsView, item: Remain) -> tuple[Remain, LostVolume] | None:
        """Anew, with its volume; None: it is not as it was."""
        lost = await self._lost_now(view, item.volume if item.kind == names.CLAIM else item.name)
        if lost is None:
            return None
        if item.kind == names.CLAIM:
            fresh = await self._claim_now(view, item, lost)
        else:
            fresh = await self._volume_now(view, lost) if lost.volume.uid == item.uid else None
        return (fresh, lost) if fresh is not None and fresh.step is item.step else None

    async def _perform(self, loss: Gone, fresh: Remain, lost: LostVolume, may_go_on: Callable[[], Awaitable[bool]]) -> bool:
        """Whether it was done."""
        match fresh.step:
            case Step.MARK_CLAIM:
                mark = {names.LOST_WITH: machine_mark.text(loss.machine)}
                patch = {"metadata": {"resourceVersion": fresh.resource_version, "uid": fresh.uid, "annotations": mark}}
                await self._kube.patch(CLAIMS, fresh.name, patch, content_type=MERGE_PATCH, namespace=fresh.namespace)
            case Step.DELETE_CLAIM:
                await self._kube.delete(
                    CLAIMS, fresh.name, namespace=fresh.namespace, uid=fresh.uid, resource_version=fresh.resource_version
                )
            case Step.EMPTY_VOLUME:

                async def still() -> bool:
                    # In this order: a node that comes back has the last word.
                    return await may_go_on() and await self._is_lost(loss)

                return await self._unplaced.delete(lost.volume, still)
            case Step.DELETE_VOLUME:
                await self._kube.delete(VOLUMES, fresh.name, uid=fresh.uid, resource_version=fresh.resource_version)
            case Step.RELEASE_VOLUME:
                left = [finalizer for finalizer in lost.volume.finalizers if finalizer != names.VOLUME_FINALIZER]
                patch = {"metadata": {"resourceVersion": fresh.resource_version, "uid": fresh.uid, "finalizers": left}}
                await self._kube.patch(VOLUMES, fresh.name, patch, content_type=MERGE_PATCH)
            case Step.NOTHING:
                return False
        return True

    async def _claim_now(self, view: RemainsView, item: Remain, lost: LostVolume) -> Remain | None:
        there: ClaimThere | None = await self._surroundings.claim(view.claims[item.uid])
        if there is None:
            return None
        pods = await self._surroundings.pods_in(item.namespace)
        sets = await self._surroundings.sets_in((item.namespace,))
        now = replace(view, volumes=(lost,), claims={item.uid: there}, pods=pods, sets=sets, attachments=())
        return next((found for found in remains(now) if (found.kind, found.uid) == (names.CLAIM, item.uid)), None)

    async def _volume_now(self, view: RemainsView, lost: LostVolume) -> Remain | None:
        volume = lost.volume
        # One without node affinity may be attached to any node.
        attachments = await self._surroundings.attachments_of(volume.name) if volume.affinity is None else view.attachments
        there = await self._surroundings.claim_of(volume)
        now = replace(view, volumes=(lost,), claims={there.uid: there} if there is not None else {}, attachments=attachments)
        return next((found for found in remains(now) if (found.kind, found.uid) == (names.VOLUME, volume.uid)), None)

    async def _lost_now(self, view: RemainsView, name: str) -> LostVolume | None:
        """As it is stored now; None: it does not say any more what it was judged by."""
        found = await find(self._kube, VOLUMES, name)
        lost = volume_of(found, self._driver) if found is not None else None
        if lost is None or not isinstance(view.loss, Gone) or not _is_of(lost, view.loss):
            return None
        proven = view.loss.evidence is not Evidence.ANNOUNCED or is_announced(view.loss.machine, (lost.leaving,))
        return lost if proven else None

    def _tell(self, loss: Gone, item: Remain, done: list[Json]) -> None:
        fields = {
            "node": loss.machine.node,
            "object": _named(item),
            "why": item.why,
        }
        log.warning("Clearing up after a node that is gone", extra={"fields": {"step": str(item.step), **fields}})
        done.append(
            {
                "at": timestamps.to_text(self._wall()),
                "step": str(item.step),
                "kind": item.kind,
                "namespace": item.namespace,
                "name": item.name,
                "uid": item.uid,
            }
        )
        if item.step is Step.RELEASE_VOLUME:
            what = "Nobody has emptied the volume"
            if self._unplaced.has_deleted(item.uid):
                self._unplaced.forget(item.uid)
                what = "The driver, asked on another node, says that the volume is deleted; it has not seen those disks"
            message = (
                f"Given up, because node {loss.machine.node}, uid {loss.machine.uid}, is gone: {loss.why}. {what}:"
                " scrub that machine's disks before they are used again"
            )
            self._recorder.record(ObjectRef("v1", names.VOLUME, "", item.name, item.uid), names.WARNING, names.NODE_GONE, message)


def _named(item: Remain) -> str:
    return f"{item.kind} {'/'.join(filter(None, (item.namespace, item.name)))}"


def _is_of(lost: LostVolume, loss: Gone) -> bool:
    return lost.lies_on == loss.machine
