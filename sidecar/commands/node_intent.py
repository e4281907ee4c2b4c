"""What the verbs of `node` write on a Node, and what they say about it: the annotation that announces what a drain is for."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType

from sidecar.commands.explain.judged import Judged
from sidecar.commands.printing import program
from sidecar.drain.marks import counting_again
from sidecar.drain.words import Intent, Status
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json


class Verb(StrEnum):
    """What people announce."""

    REBOOT = "reboot"
    RETIRE = "retire"
    RELEASE = "release"

    @property
    def intent(self) -> Intent | None:
        """What the annotation is to say; None: there is to be none."""
        return None if self is Verb.RELEASE else Intent(self.value)


def change(node: Node, verb: Verb) -> dict[str, str | None]:
    """Annotations that are to be written, None: taken away. Empty: all is as it should be.

    A reboot that a driver's record has as spent would count for nothing, so that goes with the same patch.
    """
    wanted = verb.intent and verb.intent.value
    records: dict[str, str | None] = {**counting_again(node, names.DRAIN_INTENT, Intent.REBOOT)} if verb is Verb.REBOOT else {}
    return ({} if node.annotations.get(names.DRAIN_INTENT) == wanted else {names.DRAIN_INTENT: wanted}) | records


def patch(node: Node, annotations: dict[str, str | None], *, resource_version: str) -> Json:
    """For this machine under the node's name, in exactly the state it was read in."""
    return {"metadata": {"uid": node.uid, "resourceVersion": resource_version, "annotations": annotations}}


def afterwards(node: Node, verb: Verb) -> Node:
    """The node as it will be, for the judgement that is shown."""
    changes = change(node, verb)
    kept = {key: value for key, value in node.annotations.items() if key not in changes}
    return replace(node, annotations=MappingProxyType(kept | {key: value for key, value in changes.items() if value is not None}))


def will_do(node: Node, verb: Verb) -> str:
    """What is about to be written."""
    before = node.annotations.get(names.DRAIN_INTENT)
    had = "" if before is None else f" (it says {before!r} now)"
    if not change(node, verb):
        return f"{node.name}: {_as_it_is(verb)}, so nothing is to be changed"
    if verb is Verb.RELEASE:
        return f"{node.name}: takes away the annotation {names.DRAIN_INTENT}{had}"
    return f"{node.name}: sets the annotation {names.DRAIN_INTENT}: {verb}{had}{_counts_again(node, verb)}"


def meaning(verb: Verb) -> str:
    match verb:
        case Verb.REBOOT:
            return "A reboot counts while a node is cordoned, and ends when it is uncordoned."
        case Verb.RETIRE:
            return f"This stays until it is taken back: {program()} node release NAME."
        case Verb.RELEASE:
            return "Cordons and taints stay as they are."


def unheard(node: str, judged: Iterable[Judged]) -> str:
    """Where no sidecar judges the node for a driver; empty: each does."""
    silent = [one.assessment.driver for one in judged if one.word is None]
    if not silent:
        return ""
    what = "nothing there reads the annotation, makes room for what cannot move, or holds a drain back"
    return f"{node}: no sidecar reports on it for {', '.join(silent)} (--drain-report): {what}"


def next_steps(node: Node, verb: Verb, judged: Sequence[Judged]) -> Iterable[str]:
    """What people do then: nothing here cordons, and nothing evicts."""
    if verb.intent is None:
        yield from _left(node)
        return
    waiting = [one for one in judged if one.assessment.verdict(verb.intent).status is not Status.TRUE]
    if waiting:
        yield f"kubectl cordon {node.name}   # and no drain yet: it evicts at once, also what cannot run anywhere else"
    for one in waiting:
        yield _wait(node.name, one, verb.intent)
    yield f"kubectl drain {node.name} --ignore-daemonsets"
    if verb is Verb.REBOOT:
        yield f"{program()} node release {node.name} --yes && kubectl uncordon {node.name}   # after the reboot, in this order"
    else:
        yield f"{program()} explain node {node.name} --intent retire --exit-code   # remove nothing before it is True"
        yield f"kubectl delete node {node.name}   # and remove the machine"


def _wait(node: str, judged: Judged, intent: Intent) -> str:
    driver = judged.assessment.driver
    if judged.word is None:
        return f"{program()} explain node {node} --driver {driver} --intent {intent} --exit-code   # until it exits with 0: What to do"
    ready = names.condition(driver, names.DRAIN_READY if intent is Intent.REBOOT else names.RETIRE_READY)
    return f"kubectl wait node/{node} --for=condition={ready} --timeout=24h   # explain node says why not yet"


def _left(node: Node) -> Iterable[str]:
    if names.FORCE_DRAIN in node.annotations:
        yield f"kubectl annotate node {node.name} {names.FORCE_DRAIN}-   # while it stands under a cordon, any drain is let go"
    if node.cordoned:
        yield f"kubectl uncordon {node.name}"
    if any(taint.key == names.EVACUATE_TAINT for taint in node.taints):
        yield f"kubectl taint node {node.name} {names.EVACUATE_TAINT}-"


def _as_it_is(verb: Verb) -> str:
    return f"there is no annotation {names.DRAIN_INTENT}" if verb is Verb.RELEASE else f"{names.DRAIN_INTENT} is {verb} already"


def _counts_again(node: Node, verb: Verb) -> str:
    return (
        ", which was for a cordon that is over and counts again"
        if verb is Verb.REBOOT and change(node, verb).keys() - {names.DRAIN_INTENT}
        else ""
    )
