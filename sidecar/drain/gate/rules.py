"""Decides whether this node's gate stands; what it consists of: `guard`.

Whoever drains a node has to evict the guard pod too, and waits as long as its PodDisruptionBudget forbids that. Nobody else's pod is in
that budget. On a node with volumes the gate stands in peace whatever the verdict, and opens when a drain begins and nothing blocks at
that moment: it is open only while somebody looks, and a sidecar that dies in peace leaves it shut. Both objects are deleted with the
Node. The budget is created first and deleted first: a guard pod without a budget would hold nobody.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sidecar.drain.gate import guard
from sidecar.drain.gate.guard import GateObjects, Post
from sidecar.drain.judgement.assessment import Assessment
from sidecar.drain.rest import Rest
from sidecar.drain.vocabulary import Intent, Status
from sidecar.drain.wording import first_few
from sidecar.model import names, nodes
from sidecar.model.nodes import Budget, Node, Pod
from sidecar.model.objects import Json


@dataclass(frozen=True, slots=True)
class GateView:
    """All that the rule looks at."""

    post: Post
    enabled: bool
    draining: bool
    """Somebody empties the node, or is about to: it is cordoned, tainted or marked."""
    intent: Intent | None
    """What somebody says that it is for; None: nobody does, whatever a cordon is taken for."""
    drain: Status
    retire: Status
    overridden: bool
    budget: Json | None
    """As it is stored under `names.guard`; None: there is none."""
    deployment: Json | None
    holds_volumes: bool | None = None
    """Anything of the driver is on the node; None: not known."""
    guarded: bool = False
    """A guard pod is on the node, ready or not: who drains the node has it on the list, and waits for it."""
    assumed: Intent = Intent.RETIRE
    """What a drainer that announces nothing is taken for."""

    @property
    def verdict(self) -> Status:
        """The verdict that opens the gate: that of the intent which was announced, or else is assumed.

        Where nobody says what the drain is for, and nothing is assumed but the worst, it may be either: a volume may be given up for
        retiring and keep its node from being rebooted.
        """
        if self.intent is Intent.RETIRE:
            return self.retire
        if (self.intent or self.assumed) is Intent.REBOOT:
            return self.drain
        both = {self.drain, self.retire}
        return next((status for status in (Status.FALSE, Status.UNKNOWN) if status in both), Status.TRUE)

    @property
    def guards_in_peace(self) -> bool:
        """The gate stands for a drain that may come, whatever the verdict is now."""
        return self.holds_volumes is True and not self.draining


@dataclass(frozen=True, slots=True)
class Build:
    """Create these, in this order. One that exists already is no failure."""

    objects: tuple[Json, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Clear:
    """Delete these, which would not hold, on condition of their uid. The next look builds what is missing then."""

    objects: tuple[Json, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Open:
    """Delete these in this order, on condition of their uid."""

    objects: tuple[Json, ...]
    why: str


Decision = Rest | Build | Clear | Open


def decide(view: GateView) -> Decision:
    """What is not known never opens the gate, and builds it only for volumes that are known to be there."""
    stored = tuple(obj for obj in (view.budget, view.deployment) if obj is not None)
    staying = tuple(obj for obj in stored if "deletionTimestamp" not in obj["metadata"])
    if why := _why_open(view):
        return Open(staying, why) if staying else Rest(why)
    gate = wanted(view)
    if gate is None:
        return Rest("it is not known whether something blocks")
    if staying != stored:
        return Rest("the earlier gate is still being deleted")
    pairs = ((view.budget, gate.budget), (view.deployment, gate.deployment))
    if changed := tuple(have for have, want in pairs if have is not None and not _holds(have, want, view.post.node)):
        return Clear(changed, "somebody has changed the gate so that it holds nobody")
    if view.deployment is not None and not view.draining and view.post.node.ready == nodes.TRUE and not _outlasts_silence(view.deployment):
        return Clear(
            (view.deployment,), "its guard would leave a node that does not answer, so it is made anew while nobody drains the node"
        )
    if view.deployment is not None and not view.guarded and not _may_start(view.deployment, view.post.node):
        return Clear((view.deployment,), "there is no guard pod, and none can start: the node has a taint that the gate does not tolerate")
    missing = tuple(want for have, want in pairs if have is None)
    why = _why_shut(view)
    return Build(missing, f"{why}, so whoever drains this node has to wait") if missing else Rest(f"{why}, and the gate stands")


def wanted(view: GateView) -> GateObjects | None:
    """The gate that should stand; None: none should, or it is not known."""
    return None if _why_open(view) or not _why_shut(view) else guard.objects(view.post)


def needs_watching(view: GateView, *, stands: bool, before: bool) -> bool:
    """Whether the node's Lease is kept: the gate stands, or it is open although volumes are here, and only because this sidecar looks.

    A neighbour sees by the Lease that nobody looks any more. `before`: it was kept until now.
    """
    return stands or (view.enabled and (before if view.holds_volumes is None else view.holds_volumes))


def holds_volumes(judged: Assessment | None) -> bool | None:
    """Whether anything of the driver is on the node; None: not known."""
    if judged is None:
        return None
    return True if judged.volumes else False if judged.complete else None


def why_loose(name: str, driver: str, namespace: str, *, node_uid: str, pods: Iterable[Pod], budgets: Iterable[Budget]) -> str:
    """Why a gate of that name holds nobody though it stands; empty: it holds. `pods` are those of its node."""
    guards = [pod for pod in guards_among(pods, node_uid, driver, namespace) if pod.ready]
    if not guards:
        return "its guard pod is not ready, so it holds nobody yet"
    covering = {budget.full_name for budget in budgets if any(map(budget.covers, guards))}
    others = sorted(covering - {f"{namespace}/{name}"})
    # An eviction of a pod in two budgets fails with 500 instead of 429: a drainer then gives up or goes on, and does not wait.
    return f"other budgets select its guard pod too ({first_few(others)}), so its eviction fails and is not put off" if others else ""


def guards_among(pods: Iterable[Pod], node_uid: str, driver: str, namespace: str) -> Iterator[Pod]:
    """The guard pods of this gate that have not ended and are not being deleted."""
    labels = guard.labels(node_uid, driver).items()
    ours = (pod for pod in pods if pod.namespace == namespace and labels <= pod.labels.items())
    return (pod for pod in ours if not pod.ended and not pod.deleting_since)


def selector(driver: str) -> str:
    """The label selector that finds the gates of all nodes."""
    return f"{names.GUARDED_FOR}={driver}"


def _why_open(view: GateView) -> str:
    """Why no gate should stand; empty: one should, or it is not known."""
    if not view.enabled:
        return "the gate is switched off"
    if view.overridden:
        return "what blocks is overridden"
    return "nothing blocks" if view.verdict is Status.TRUE and (view.draining or view.holds_volumes is False) else ""


def _why_shut(view: GateView) -> str:
    """Why a gate should stand, if nothing opens it; empty: it is not known whether it should."""
    if view.verdict is Status.FALSE:
        return "something blocks"
    return "volumes are here, and nobody drains the node yet" if view.guards_in_peace else ""


def _holds(have: Mapping[str, Any], want: Json, node: Node) -> bool:
    """Whether the fields that make it hold are as they were made. What others add, and another image, make no difference."""
    as_made = all(have["spec"].get(key) == want["spec"][key] for key in ("minAvailable", "selector", "replicas") if key in want["spec"])
    return as_made and ("template" not in want["spec"] or _stands_here(have["spec"]["template"]["spec"], node))


def _stands_here(pod: Mapping[str, Any], node: Node) -> bool:
    """Whether a pod of this template can run on this node and on no other."""
    bound = pod.get("nodeName") in (None, "", node.name)
    selected = (pod.get("nodeSelector") or {}).items() <= node.labels.items()
    tolerated = pod.get("tolerations") or ()
    return (
        bound
        and selected
        and all(item in tolerated for item in guard.always_tolerated())
        and _includes(pod.get("affinity"), guard.only_on(node))
    )


def _outlasts_silence(deployment: Mapping[str, Any]) -> bool:
    """Those of earlier releases do not, and hold all the same: under a drainer that waits for one it is not replaced."""
    tolerated = deployment["spec"]["template"]["spec"].get("tolerations") or ()
    return all(item in tolerated for item in guard.OF_SILENCE)


def _may_start(deployment: Mapping[str, Any], node: Node) -> bool:
    """Whether a guard pod could start now. It is asked only where there is none: one that is there is not replaced for a taint."""
    if (deployment.get("status") or {}).get("readyReplicas"):
        return True  # the watch of pods may lag
    template = Pod.of({"metadata": {"name": node.name}, "spec": deployment["spec"]["template"]["spec"]})
    return template.tolerates(filter(guard.lasts, node.taints))


def _includes(have: object, want: object) -> bool:
    """Whether all that we wrote is there. A list must not be longer: one more term of an affinity would let the guard run elsewhere."""
    match want, have:
        case dict(), dict():
            return all(_includes(have.get(key), value) for key, value in want.items())
        case list(), list():
            return len(have) == len(want) and all(map(_includes, have, want))
        case _:
            return have == want
