"""Reads the marks of a node: its cordon and taints, what people and programs wrote on it, and what this driver's sidecar noted before.

Nothing is decided here. A text that cannot be understood becomes a problem with a name, and never counts as the milder of two things.
"""

from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Final

from sidecar.drain.facts import reboot_note
from sidecar.drain.facts.announcement import Announcement, Source, announcement, evacuating, retiring
from sidecar.drain.facts.mark_texts import noted_time, quoted, word
from sidecar.drain.facts.reboot_note import RebootNote
from sidecar.drain.vocabulary import Intent
from sidecar.model import names
from sidecar.model.nodes import Node, Taint


class NodePolicy(StrEnum):
    """What a sidecar does when somebody wants to drain the node."""

    IGNORE = "Ignore"
    NO_SCHEDULE = "NoSchedule"
    EVACUATE = "Evacuate"


class State(StrEnum):
    """How far an evacuation is: the value of the label."""

    PENDING = "Pending"
    IN_PROGRESS = "InProgress"
    SUCCESS = "Success"
    FAILED = "Failed"
    OVERRIDDEN = "Overridden"


OF_MARKS: Final = "marks on the Node: "
"""The beginning of a note about a problem with marks, by which events find it again."""
# What this driver's sidecar notes on the node as annotations.
_NOTED: Final = (names.EVACUATION_STARTED_AT, names.CLOSED_AT, names.MARKED_NODE, names.SPENT_OVERRIDE, names.REBOOT_INTENT)
# Seconds that a cordon has to last until it means retire, where the policy is Evacuate and nobody says what it is for.
CORDON_DELAY: Final = 60.0


@dataclass(frozen=True, slots=True)
class Signals:
    """What the marks of a node say."""

    node: str
    uid: str
    cordoned: bool
    retiring: tuple[Taint, ...]
    """Taints of autoscalers that are about to remove the node. They need not cordon it."""
    evacuate: tuple[Taint, ...]
    """Taints that ask for an evacuation; several if it has several effects."""
    declared: Intent | None
    """The intent in the annotation, if it is one and not spent."""
    announced: Intent | None
    """The strictest of all intents that taints, annotations and programs state."""
    intent: Intent | None
    """The same as far as it counts: a reboot does only while the node is cordoned. With Evacuate a cordon that has lasted is one too."""
    source: Source
    policy: NodePolicy | None
    """The policy in the node's annotation; None: there is none, or it is not a policy."""
    force_drain: str
    """The text of the annotation, whether it still counts or not."""
    spent: bool
    """That text has ended an evacuation before. People forget to remove it, and it must not end the next one as well."""
    started_at: float | None
    start_problem: str
    """Why the noted start cannot be used; empty if it can, or if none is noted."""
    closed_at: float | None
    reboot: RebootNote | None
    """What the mark about a reboot in the annotation should say."""
    noted_reboot: str
    """What that mark says."""
    unexplained_since: float | None
    """Since when the node has been cordoned and nobody has said what for; None: it is not, or somebody has."""
    cordon_counts_at: float | None
    """When that will mean retire, if the cordon lasts until then; None: it does by now, or never will."""
    assumable: bool
    """Nobody says what a drain is for, not even in a word that is none, and no policy does: only then may something be assumed."""
    state: State | None
    marked: bool
    """There is a mark of an evacuation, readable or not."""
    problems: tuple[str, ...]

    @property
    def shut(self) -> bool:
        """Whether somebody keeps pods off the node, for whatever reason."""
        return self.cordoned or bool(self.retiring)

    @property
    def observed(self) -> bool:
        """Whether somebody wants to empty the node, or is about to."""
        return self.cordoned or bool(self.evacuate) or self.announced is not None

    @property
    def purpose(self) -> Intent | None:
        """What the node is to be emptied for, as far as that is known, whether it counts yet or not."""
        return self.announced or self.intent

    @property
    def draining(self) -> bool:
        """Whether a drain has begun, or is asked for. A reboot that is announced for a cordon to come has not."""
        return self.cordoned or bool(self.evacuate) or self.intent is not None

    @property
    def override(self) -> str:
        """Why the node is to be let go whatever blocks; empty: it is not."""
        return "" if self.spent else self.force_drain

    @property
    def notes(self) -> tuple[str, ...]:
        """The problems as notes of a judgement, and what does not count yet."""
        waiting = self.announced is Intent.REBOOT and self.intent is None
        early = (f"a reboot is announced ({self.source}): it counts only while the node is cordoned",) if waiting else ()
        return (*(f"{OF_MARKS}{problem}" for problem in self.problems), *early)


def read(
    node: Node,
    driver: str,
    *,
    now: float,
    default_policy: NodePolicy | None = None,
    cordon_delay: float = CORDON_DELAY,
    before: Signals | None = None,
) -> Signals:
    """`now` is the wall clock: a noted time must not be later. `default_policy` is that of the flag; None: not known.

    `before` is what this process read last. It bridges what the marks do not tell yet: a cordon that was lifted for a moment, and
    since when one has lasted.
    """
    own = {name: node.annotations.get(names.of_driver(driver, name), "") for name in _NOTED}
    state_text = node.labels.get(names.of_driver(driver, names.EVACUATION_STATE), "")
    marked = bool(state_text or own[names.EVACUATION_STARTED_AT])
    noted_reboot, former = own[names.REBOOT_INTENT], _of_former_node(own[names.MARKED_NODE], node.uid)
    if former:
        own, state_text = dict.fromkeys(own, ""), ""
    before = before if before is not None and before.uid == node.uid else None
    text = node.annotations.get(names.DRAIN_INTENT, "").strip()
    written, of_intent = word(Intent, text, names.DRAIN_INTENT)
    reboot = reboot_note.followed(_known_reboot(noted_reboot, former, before), declared=written, cordoned=node.cordoned)
    declared = None if reboot is RebootNote.SPENT else written
    said = announcement(node, annotated=declared, wrong=text if of_intent else "")
    policy, of_policy = word(NodePolicy, node.annotations.get(names.NODE_DRAIN_POLICY, ""), names.NODE_DRAIN_POLICY)
    state, of_state = word(State, state_text, names.of_driver(driver, names.EVACUATION_STATE))
    started_at, of_start = noted_time(own[names.EVACUATION_STARTED_AT], names.EVACUATION_STARTED_AT, now)
    closed_at, of_closing = noted_time(own[names.CLOSED_AT], names.CLOSED_AT, now)
    unexplained_since = _unexplained_since(before, closed_at, now) if node.cordoned and said.intent is None else None
    evacuates = (policy or default_policy) is NodePolicy.EVACUATE
    counts_at = unexplained_since + cordon_delay if evacuates and unexplained_since is not None else None
    by_cordon = counts_at is not None and counts_at <= now
    force_drain = node.annotations.get(names.FORCE_DRAIN, "").strip()
    spent = bool(force_drain) and own[names.SPENT_OVERRIDE] == digest(force_drain)
    of_taint = _ignored_taint(evacuating(node), policy or default_policy)
    of_marks = (_spent_reboot(reboot, node.name), of_policy, of_taint, of_state, of_start, of_closing, _spent_override(spent=spent))
    return Signals(
        node=node.name,
        uid=node.uid,
        cordoned=node.cordoned,
        retiring=retiring(node),
        evacuate=evacuating(node),
        declared=declared,
        announced=said.intent,
        intent=Intent.RETIRE if by_cordon else _counting(said, cordoned=node.cordoned),
        source=Source.CORDON if by_cordon else said.source,
        policy=policy,
        force_drain=force_drain,
        spent=spent,
        started_at=started_at,
        start_problem=of_start,
        closed_at=closed_at,
        reboot=reboot,
        noted_reboot=noted_reboot,
        unexplained_since=unexplained_since,
        cordon_counts_at=None if by_cordon else counts_at,
        assumable=said.intent is None and not of_intent and not evacuates,
        state=state,
        marked=marked,
        problems=tuple(problem for problem in (former, of_intent, *said.problems, *of_marks) if problem),
    )


def digest(force_drain: str) -> str:
    """What is remembered of an override: enough to recognise the same text, and short."""
    return sha256(force_drain.encode()).hexdigest()[:16]


def _of_former_node(marked: str, uid: str) -> str:
    return f"marks of a former node of this name (uid {quoted(marked)}) are not applied" if marked and marked != uid else ""


def _known_reboot(noted: str, former: str, before: Signals | None) -> RebootNote | None:
    """This process may know more than the mark, which is written later. Where people have taken a mark away, that counts."""
    if before is not None and before.noted_reboot == noted:
        return before.reboot
    spent_here = before is not None and before.reboot is RebootNote.SPENT
    return RebootNote.SPENT if noted and (former or spent_here) else reboot_note.noted(noted)


def _counting(said: Announcement, *, cordoned: bool) -> Intent | None:
    return said.intent if cordoned or said.intent is not Intent.REBOOT else None


def _unexplained_since(before: Signals | None, closed_at: float | None, now: float) -> float:
    """An earlier process may have seen the cordon begin: then the noted closing tells. A clock that was set back starts it anew."""
    if before is None:
        return now if closed_at is None else closed_at
    return now if before.unexplained_since is None else min(now, before.unexplained_since)


def _spent_reboot(reboot: RebootNote | None, node: str) -> str:
    if reboot is not RebootNote.SPENT:
        return ""
    remedy = f"remove it, and set it again for another reboot, or run csi-node-sidecar node reboot {node}"
    return f"{names.DRAIN_INTENT}: {Intent.REBOOT} was for a cordon that is over, and counts for nothing any more: {remedy}"


def _spent_override(*, spent: bool) -> str:
    return f"{names.FORCE_DRAIN} was for an evacuation that is over, and is not applied again: remove it" if spent else ""


def _ignored_taint(evacuate: tuple[Taint, ...], policy: NodePolicy | None) -> str:
    if not evacuate or policy is not NodePolicy.IGNORE:
        return ""
    remedy = f"set --node-drain-policy, or {names.NODE_DRAIN_POLICY} on the node"
    return f"the taint {evacuate[0]} has no effect, because the node drain policy is {policy}: {remedy}"
