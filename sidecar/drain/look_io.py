"""What a running sidecar knows of its own node: its caches, and what is not watched. That is listed anew every minute while somebody
drains the node, every ten minutes in peace, and once more right before a True opens something.

The caches are read last and all at one moment: a creation that ends while lists are awaited must be seen either as one or as the other.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sidecar.drain.driver_list_io import DriverList
from sidecar.drain.policy import CLAIM, CLASS, NAMESPACE, unread_key
from sidecar.drain.settings import Settings
from sidecar.drain.snapshot import Own, Raw, Snapshot, build
from sidecar.drain.where import ELSEWHERE, Locator
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, NAMESPACES, NODES, PODS, VOLUMES, KubeApi, Resource, find, records
from sidecar.kube.errors import ApiError
from sidecar.kube.store import Store
from sidecar.local.caches import Caches
from sidecar.model import names
from sidecar.model.nodes import Node, Pod, SnapshotContent
from sidecar.model.objects import CapacityRecord, Claim, Class, Json, Notes, Volume, notes_of
from sidecar.model.topology import Segment

R = TypeVar("R")

DRAINING: Final = 60.0
IN_PEACE: Final = 600.0
LAST_GOOD: Final = 180.0
"""Seconds for which the last good answer counts while nothing newer is to be had: a pause of the API server must not turn the verdicts of
all nodes to Unknown and back, with all their writes, just when it has come back."""
_AGAIN: Final = 5.0  # seconds until what was not answered is asked again
LATELY: Final = 60.0  # seconds: controllers make a pod again within a few; one that takes longer is in the list of pods without a node
MADE_AGAIN_WITHIN: Final = 30.0
_MANY_NAMES: Final = 1000  # names that are kept before those that count no more are looked for: tenants may make pods without end
_UNSEEN: Final = "volumes of claims that are bound here"
_MOST_UNSEEN: Final = 200
_MOST_BY_NAME: Final = 200  # claims that the watch dropped, because it saw them before it knew of their volume, may be all of a node


class RecentUse:
    """One per process: by claim, when a pod that drains evict named it last. Between an eviction and the new pod nobody names the claim,
    for some seconds: so a claim that a pod has named counts as used for a minute after. That is not stored: a process that has just begun
    takes every claim for lately used for its first minute."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._named_at: dict[str, float] = {}
        self._began: float | None = None

    def began(self) -> None:
        """From now on this process sees which pods name which claims; told again, nothing changes."""
        self._began = self._clock() if self._began is None else self._began

    def named(self, pod: Pod) -> None:
        """This pod names its claims now, or did until now."""
        now = self._clock()
        if len(self._named_at) > _MANY_NAMES:
            self._named_at = {claim: at for claim, at in self._named_at.items() if now - at < 2 * LATELY}
        if not (pod.stays or pod.ended):
            self._named_at |= dict.fromkeys(pod.claim_names, now)

    def among(self, claims: Iterable[str], *, listed_at: float = float("inf")) -> frozenset[str]:
        """Those of these claims (`namespace/name`) that count as used, whoever uses them now. `listed_at`: when the pods without a node
        were listed last, among which one that was made again since would not be."""
        now = self._clock()
        if self._began is None or now - self._began < LATELY:
            return frozenset(claims)
        named = {claim: self._named_at[claim] for claim in claims if claim in self._named_at}
        return frozenset(claim for claim, at in named.items() if now - at < LATELY or listed_at < at + MADE_AGAIN_WITHIN)


@dataclass(slots=True)
class _Answer:
    """To a question: the last good one, and the last failure after it."""

    at: float = float("-inf")
    value: Any = None
    about: frozenset[str] = frozenset()
    failed_at: float = float("-inf")
    why: str = ""


class Looks:
    def __init__(
        self,
        kube: KubeApi,
        settings: Settings,
        caches: Caches,
        driver_list: DriverList,
        *,
        pods: Store[Pod],
        contents: Store[SnapshotContent],
        ignorance: Callable[[], tuple[str, ...]],
        segment: Segment,
        begun: Callable[[], Collection[str]],
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        """Of claims, volumes and pods the caches have only those that may concern this node. `ignorance`: what is not known at the moment
        because a watch is not complete, in sentences. `begun`: uids of claims for which something was begun in the driver."""
        self._kube, self._clock, self._wall = kube, clock, wall
        self._settings, self._cached, self._list, self._pods, self._contents = settings, caches, driver_list, pods, contents
        self._ignorance, self._segment, self._begun = ignorance, segment, begun
        self.recent = RecentUse(clock=clock)
        self._answers: dict[str, _Answer] = {}  # by question
        self.copies: Callable[[], Mapping[str, bool | None]] = dict  # what the storage says, where fail-over asks it
        self.unread: dict[str, str] = {}  # what the last look could not read, and why
        self._waiting_since: dict[str, float] = {}  # by uid of a claim without a volume: since when it waits for one here

    async def look(self, node: Node, *, drain_expected: bool, anew: bool = False) -> Snapshot:
        """`drain_expected`: somebody empties the node. `anew`: nothing counts that was read before."""
        every = 0.0 if anew else DRAINING if drain_expected else IN_PEACE
        asked, missing = await self._ask_all(node, every, drain_expected=drain_expected)
        unread = self.unread
        # From here on nothing is awaited.
        cached, driver = self._cached, self._settings.driver
        found = [*asked["volumes"], *filter(None, asked[_UNSEEN].values()), *cached.volumes.values()]
        volumes = {volume.name: volume for volume in found}.values()  # the watch comes last, because it is the newest
        read = (asked["claims"].get(name) for name in missing)  # an answer that is older may have more, which are gone
        claims = {claim.uid: claim for claim in (*filter(None, read), *cached.claims.values())}
        open_claims = [volume.claim_name for volume in volumes if volume.phase == "Bound" and volume.claim is not None]
        now_missing = self._missing_claims() - missing
        ignorance = [*self._ignorance(), *(f"{what}: {why}" for what, why in sorted(unread.items()))]
        ignorance += [f"claim {sorted(now_missing)[0]} has not been read yet"] if now_missing else []
        raw = Raw(
            at=self._wall(),
            nodes=(node, *(other for other in asked["nodes"] or () if other.name != node.name)),
            volumes=tuple(volumes),
            claims=tuple(claims.values()),
            pods=(*self._pods.values(), *asked["pods without a node"]),
            classes=(*cached.classes.values(), *filter(None, asked["classes"].values())),
            namespaces=dict(asked["namespaces"]),
            contents=tuple(self._contents.values()),
            attachments=tuple(cached.attachments.values()),
            capacities=asked["capacities"],
            others_known=asked["nodes"] is not None,
            gone=frozenset(name for name, volume in asked[_UNSEEN].items() if volume is None),
            unread=frozenset(unread_key(CLAIM, name) for name in missing if "claims" in unread),
            unlisted=frozenset(kind for kind, what in ((NAMESPACE, "namespaces"), (CLASS, "classes")) if what in unread),
            ignorance=tuple(ignorance),
        )
        pods_listed = self._answers.get("pods without a node", _Answer())
        own = Own(
            segment=self._segment,
            begun=frozenset(self._begun()),
            waited=self._waited(node.name),
            lately_used=self.recent.among(open_claims, listed_at=pods_listed.at),
            listed=self._list.handles,
            untracked=self._list.untracked,
            untracked_unknown=self._list.unknown,
            not_listed=self._list.not_listed,
            copies=self.copies(),
            default_policy=self._settings.default_policy,
            reprovisions=self._settings.reprovisions,
        )
        return build(raw, node.name, driver, own)

    # --- what is not watched ----------------------------------------------------------------------------------------------

    async def _ask_all(self, node: Node, every: float, *, drain_expected: bool) -> tuple[dict[str, Any], frozenset[str]]:
        """By question, and of which claims was asked. Lists are of the whole cluster, and of each object only what counts is kept."""
        driver, volumes = self._settings.driver, list(self._cached.volumes.values())
        found: dict[str, Any] = {"nodes": (), "volumes": (), "namespaces": (), "classes": {}, "capacities": None, "pods without a node": ()}
        found |= {_UNSEEN: {}, "claims": {}}
        self.unread = {}

        async def ask(
            what: str, question: Callable[[], Awaitable[Any]], default: Any, *, about: Collection[str] = (), every: float = every
        ) -> None:
            found[what], why = await self._ask(what, question, default, every=every, about=about)
            if why is not None:
                self.unread[what] = why

        wanted = {volume.claim.namespace for volume in volumes if volume.claim is not None}

        def said(obj: Json) -> tuple[str, Notes] | None:
            name = obj["metadata"]["name"]
            return (name, notes_of(obj["metadata"].get("annotations"))) if name in wanted else None

        if wanted:
            # Not from the API server's cache where something would be opened by what they say.
            await ask("namespaces", lambda: self._list_all(NAMESPACES, said, cached=every > 0), (), about=wanted)
        named = {volume.claim_name for volume in volumes if volume.claim is not None}
        listed_at = self._answers.get("pods without a node", _Answer()).at
        # Until a list has been made that would show a pod which was made again: else that would have to wait for the next one in peace.
        often = min(every, MADE_AGAIN_WITHIN) if self.recent.among(named, listed_at=listed_at) else every
        if named:
            await ask("pods without a node", lambda: self._waiting_pods(named), (), every=often)
        known = {class_.name for class_ in self._cached.classes.values()}
        if foreign := {volume.class_name for volume in volumes} - known - {""}:
            # A class of volumes that people made names no driver of ours, so the watch drops it; its policy counts all the same.
            await ask("classes", lambda: self._by_name(CLASSES, foreign, Class.of), {}, about=foreign)
        locator = Locator(node, (), segment=self._segment)
        unsure = [volume for volume in volumes if locator.needs_others(volume) and not self._names_only_this(volume, node)]
        # A watch that lags will show it. That of a claim whose volume is gone never will, and must not hold the node for ever.
        bound = (claim for claim in self._cached.claims.by_index("node", node.name) if claim.volume_name not in self._cached.volumes)
        if unseen := sorted({claim.volume_name for claim in bound} - {""})[:_MOST_UNSEEN]:
            await ask(_UNSEEN, lambda: self._by_name(VOLUMES, unseen, Volume.of), {}, about=unseen)
        elsewhere, handles = self._list.elsewhere, {volume.handle for volume in volumes}
        reprovisions = drain_expected and self._settings.reprovisions
        if unsure or elsewhere or reprovisions:
            await ask("nodes", lambda: self._list_all(NODES, Node.of), None)
        sources = {content.source_handle for content in self._contents.values() if not content.managed_by} - handles
        if sources or elsewhere:
            locator = Locator(node, found["nodes"] or (), segment=self._segment)

            def counts(obj: Json) -> Volume | None:
                """A snapshot's, or one that the driver has here although its PersistentVolume says another node that is not there."""
                volume = Volume.of(obj) if ((obj.get("spec") or {}).get("csi") or {}).get("driver") == driver else None
                if volume is None or volume.handle in sources:
                    return volume
                is_odd = volume.handle in elsewhere and locator.place(volume, listed=True) is not ELSEWHERE
                return volume if is_odd else None

            await ask("volumes", lambda: self._list_all(VOLUMES, counts), (), about=sources | elsewhere)
        if reprovisions:
            where = {"namespace": self._settings.namespace, "label_selector": f"{names.CAPACITY_DRIVER_LABEL}={driver}"}
            await ask("capacities", lambda: self._list_all(CAPACITIES, CapacityRecord.of, **where), None)
        if missing := self._missing_claims():
            await ask("claims", lambda: self._by_name(CLAIMS, missing, Claim.of), {}, about=missing)
        return found, missing

    async def _ask(
        self, what: str, question: Callable[[], Awaitable[Any]], default: Any, *, every: float, about: Collection[str]
    ) -> tuple[Any, str | None]:
        """And why it is not known; None: it is. `about`: what alone the answer is about: one about less counts for nothing."""
        now, last = self._clock(), self._answers.setdefault(what, _Answer())
        at = last.at if last.about.issuperset(about) else float("-inf")
        if now - at < every:
            return last.value, None
        if now - last.failed_at >= min(_AGAIN, every):
            try:
                last.value = await question()
                last.at, last.about, last.failed_at = now, frozenset(about), float("-inf")
                return last.value, None
            except ApiError as error:
                last.failed_at, last.why = now, str(error)
        return (last.value, None) if every > 0.0 and now - at < every + LAST_GOOD else (default, last.why)

    async def _waiting_pods(self, named: Collection[str]) -> tuple[Pod, ...]:
        """Pods without a node that name one of these claims."""

        def waiting(obj: Json) -> Pod | None:
            pod = Pod.of(obj)
            return pod if not pod.ended and not pod.node and any(claim in named for claim in pod.claim_names) else None

        found = tuple([pod async for pod in records(self._kube, PODS, waiting, field_selector="spec.nodeName=")])
        for pod in found:
            self.recent.named(pod)
        return found

    async def _list_all(self, resource: Resource, of: Callable[[Json], R | None], **scope: Any) -> tuple[R, ...]:
        return tuple([item async for item in records(self._kube, resource, of, **{"cached": True, **scope})])

    async def _by_name(self, resource: Resource, wanted: Collection[str], of: Callable[[Json], R]) -> Mapping[str, R | None]:
        """By their full names: one by one, since a list is of the whole cluster, unless there are many."""
        if len(wanted) > _MOST_BY_NAME:

            def named(obj: Json) -> tuple[str, R] | None:
                meta = obj["metadata"]
                full_name = "/".join(filter(None, (meta.get("namespace"), meta["name"])))
                return (full_name, of(obj)) if full_name in wanted else None

            listed = dict(await self._list_all(resource, named))
            return {name: listed.get(name) for name in wanted}
        found: dict[str, R | None] = {}
        for full_name in sorted(wanted):
            namespace, _, name = full_name.rpartition("/")
            obj = await find(self._kube, resource, name, namespace=namespace)
            found[full_name] = None if obj is None else of(obj)
        return found

    def _names_only_this(self, volume: Volume, node: Node) -> bool:
        """It asks for a label that one node alone has, the driver's or the hostname: then no other node matters."""
        hostname = node.labels.get(names.HOSTNAME)
        places = (self._segment, Segment(((names.HOSTNAME, hostname),) if hostname is not None else ()))
        return bool(volume.affinity) and all(term.names_only(node.name, places) for term in volume.affinity or ())

    # --- claims -----------------------------------------------------------------------------------------------------------

    def _missing_claims(self) -> frozenset[str]:
        """Full names of claims whose volume is here and that the watch dropped: it saw them before it knew of the volume."""
        known = {claim.full_name for claim in self._cached.claims.values()}
        bound = (volume for volume in self._cached.volumes.values() if volume.phase == "Bound" and volume.claim is not None)
        return frozenset(volume.claim_name for volume in bound) - known

    def _waited(self, node: str) -> dict[str, float]:
        now = self._clock()
        waiting = [claim.uid for claim in self._cached.claims.by_index("node", node) if not claim.volume_name]
        self._waiting_since = {uid: self._waiting_since.get(uid, now) for uid in waiting}
        return {uid: now - since for uid, since in self._waiting_since.items()}
