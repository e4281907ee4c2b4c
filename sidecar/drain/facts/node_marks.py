"""Reads the marks of a node: its cordon and taints, what people and programs wrote on it, and what this driver's sidecar noted before.

Nothing is decided here. A text that cannot be understood becomes a problem with a name, and never counts as the milder of two things.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sidecar.drain.facts import kured_note, reboot_note
from sidecar.drain.facts.announcement import Announcement, Source, announcement, evacuating, retiring
from sidecar.drain.facts.kured_note import KuredNote
from sidecar.drain.facts.mark_texts import word
from sidecar.drain.facts.own_notes import Noted, State, digest, read_notes
from sidecar.drain.facts.reboot_note import RebootNote
from sidecar.drain.vocabulary import Intent
from sidecar.model import names
from sidecar.model.nodes import Node, Taint


class NodePolicy(StrEnum):
    """What a sidecar does when somebody wants to drain the node."""

    IGNORE = "Ignore"
    NO_SCHEDULE = "NoSchedule"
    EVACUATE = "Evacuate"


OF_MARKS: Final = "marks on the Node: "
"""The beginning of a note about a problem with marks, by which events find it again."""
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
    kured: KuredNote
    """What kured announces, and for how long that counts."""
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
    leaving: bool = False
    """Somebody has announced, in a word that is one, that the node goes for good, and nobody says anything else."""

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
        spent = (self.kured.note,) if self.kured.note else ()
        return (*(f"{OF_MARKS}{problem}" for problem in self.problems), *early, *spent)


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
    before = before if before is not None and before.uid == node.uid else None
    noted = read_notes(node, driver, now=now)
    said = _what_is_said(node, noted, before)
    policy, of_policy = word(NodePolicy, node.annotations.get(names.NODE_DRAIN_POLICY, ""), names.NODE_DRAIN_POLICY)
    evacuates = (policy or default_policy) is NodePolicy.EVACUATE
    cordon = _what_a_cordon_means(node, said, noted, before=before, now=now, delay=cordon_delay if evacuates else None)
    force_drain = node.annotations.get(names.FORCE_DRAIN, "").strip()
    spent = bool(force_drain) and noted.spent_override == digest(force_drain)
    of_taint = _ignored_taint(evacuating(node), policy or default_policy)
    of_marks = (_spent_reboot(said.reboot, node.name), of_policy, of_taint, *noted.problems, _spent_override(spent=spent))
    return Signals(
        node=node.name,
        uid=node.uid,
        cordoned=node.cordoned,
        retiring=retiring(node),
        evacuate=evacuating(node),
        declared=said.declared,
        announced=said.together.intent,
        intent=Intent.RETIRE if cordon.counts else _counting(said.together, cordoned=node.cordoned),
        source=Source.CORDON if cordon.counts else said.together.source,
        policy=policy,
        force_drain=force_drain,
        spent=spent,
        started_at=noted.started_at,
        start_problem=noted.start_problem,
        closed_at=noted.closed_at,
        reboot=said.reboot,
        noted_reboot=noted.reboot,
        kured=said.kured,
        unexplained_since=cordon.unexplained_since,
        cordon_counts_at=None if cordon.counts else cordon.counts_at,
        assumable=said.together.intent is None and not said.problem and not evacuates,
        state=noted.state,
        marked=noted.marked,
        problems=tuple(problem for problem in (noted.former, said.problem, *said.together.problems, *of_marks) if problem),
        # Whoever ignores the taint is told that it has no effect.
        leaving=said.together.plainly_retire and not (of_taint and said.together.source is Source.TAINT),
    )


# --- what people and programs say -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Said:
    declared: Intent | None
    """As `Signals.declared`."""
    reboot: RebootNote | None
    """As `Signals.reboot`."""
    kured: KuredNote
    problem: str
    """What is wrong with the annotation; empty: nothing."""
    together: Announcement


def _what_is_said(node: Node, noted: Noted, before: Signals | None) -> _Said:
    text = node.annotations.get(names.DRAIN_INTENT, "").strip()
    written, problem = word(Intent, text, names.DRAIN_INTENT)
    reboot = reboot_note.followed(_known_reboot(noted.reboot, noted.former, before), declared=written, cordoned=node.cordoned)
    declared = None if reboot is RebootNote.SPENT else written
    kured = kured_note.read(node, noted.kured, former=bool(noted.former), before=before.kured if before else None)
    together = announcement(node, annotated=declared, wrong=text if problem else "", kured=kured.counts)
    return _Said(declared, reboot, kured, problem, together)


def _known_reboot(noted: str, former: str, before: Signals | None) -> RebootNote | None:
    """This process may know more than the mark, which is written later. Where people have taken a mark away, that counts."""
    if before is not None and before.noted_reboot == noted:
        return before.reboot
    spent_here = before is not None and before.reboot is RebootNote.SPENT
    return RebootNote.SPENT if noted and (former or spent_here) else reboot_note.noted(noted)


def _counting(said: Announcement, *, cordoned: bool) -> Intent | None:
    return said.intent if cordoned or said.intent is not Intent.REBOOT else None


@dataclass(frozen=True, slots=True)
class _Cordon:
    """One of which nobody says what it is for."""

    unexplained_since: float | None
    """As `Signals.unexplained_since`."""
    counts_at: float | None
    """When it means retire, if it lasts until then; None: never."""
    counts: bool
    """It does by now."""


def _what_a_cordon_means(node: Node, said: _Said, noted: Noted, *, before: Signals | None, now: float, delay: float | None) -> _Cordon:
    """`delay`: how long it has to last until it means retire; None: it never does."""
    unexplained = node.cordoned and said.together.intent is None
    since = _unexplained_since(before, noted.closed_at, now) if unexplained else None
    counts_at = since + delay if delay is not None and since is not None else None
    return _Cordon(since, counts_at, counts=counts_at is not None and counts_at <= now)


def _unexplained_since(before: Signals | None, closed_at: float | None, now: float) -> float:
    """An earlier process may have seen the cordon begin: then the noted closing tells. A clock that was set back starts it anew."""
    if before is None:
        return now if closed_at is None else closed_at
    return now if before.unexplained_since is None else min(now, before.unexplained_since)


# --- problems ---------------------------------------------------------------------------------------------------------


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
