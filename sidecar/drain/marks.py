"""Reads a Node: who wants what to be done with it, and what this driver's sidecar has noted there.

Three words are for one drain each, and people forget to take them off: `drain-intent: reboot`, kured's annotation and `force-drain`. A
word that stood while the node was shut is spent once the node is open again: the record on the Node remembers both by a digest. A text
that cannot be understood becomes a problem with a name, and never counts as the milder of two things.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from typing import Final, TypeVar

from sidecar.drain.maintenance.step import record_of as maintenance_of
from sidecar.drain.words import Intent, quoted
from sidecar.model import names, timestamps
from sidecar.model.nodes import Node, Taint

W = TypeVar("W", bound=StrEnum)

CORDON_DELAY: Final = 60.0  # seconds that a cordon lasts until it means retire, where the policy is Evacuate and nobody says what it is for


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


class Source(StrEnum):
    """Who says what the node is drained for. If several say the same, the first of these is named."""

    TAINT = "taint"
    ANNOTATION = "annotation"
    MAINTENANCE = "maintenance"
    AUTOSCALER = "autoscaler"
    KURED = "kured"
    CORDON = "cordon"  # nobody says what it is for, and the policy is Evacuate
    NONE = "none"


# --- what the sidecar has noted ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record:
    """What this driver's sidecar has noted on the Node, in one annotation. That of another machine of the name counts for nothing."""

    state: State | None = None
    started_at: float | None = None
    closed_at: float | None = None  # since when the node takes no volumes
    used: frozenset[str] = frozenset()  # digests of the words that stand while the node is shut
    spent: frozenset[str] = frozenset()  # digests of words that stood while the node was shut, and stand yet though it has been open since

    def as_text(self, uid: str) -> str | None:
        """The annotation; None: there is nothing to note."""
        if self == Record():
            return None
        said: dict[str, object] = {"uid": uid}
        said |= {"state": str(self.state)} if self.state else {}
        said |= {
            key: timestamps.to_text(at) for key, at in (("startedAt", self.started_at), ("closedAt", self.closed_at)) if at is not None
        }
        said |= {key: sorted(found) for key, found in (("used", self.used), ("spent", self.spent)) if found}
        return json.dumps(said, separators=(",", ":"))


def record_of(node: Node, driver: str, *, now: float) -> tuple[Record, str]:
    """And what is wrong with it; empty: nothing. Anybody may have edited it: what makes no sense is not there."""
    key = names.of_driver(driver, names.DRAIN_RECORD)
    text = node.annotations.get(key, "")
    if not text:
        return Record(), ""
    try:
        said = json.loads(text)
        if not isinstance(said, dict):
            raise TypeError
        used, spent = (frozenset(str(item) for item in said.get(name) or ()) for name in ("used", "spent"))
        if said.get("uid") != node.uid:
            # The words that were for the earlier one are not for the disks of this one.
            return Record(spent=used | spent), f"{key} is of an earlier Node of this name: no state and no time in it counts"
        state = State(said["state"]) if said.get("state") else None
    except (ValueError, TypeError, RecursionError):
        return Record(), f"{key} is not what a sidecar writes: {quoted(text)}"
    times = {name: timestamps.to_seconds(str(said.get(name) or "")) for name in ("startedAt", "closedAt")}
    started, closed = (at if at is not None and at <= now else None for at in times.values())
    wrong = "" if started == times["startedAt"] else f"{key} says that the evacuation began in the future"
    return Record(state, started, closed, used, spent), wrong


# --- what a node wants ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wish:
    """Somebody wants the node to be emptied."""

    by: str  # who, in a sentence
    intent: Intent  # which verdict has to become True: unless it is announced as a reboot, the stricter one
    forced: str = ""  # why it is let go whatever blocks, in a sentence; empty: it is not


@dataclass(frozen=True, slots=True)
class Marks:
    """What stands on a Node, and what it means."""

    node: str
    uid: str
    cordoned: bool
    evacuate: tuple[Taint, ...]  # taints that ask for an evacuation
    retiring: tuple[Taint, ...]  # of autoscalers that are about to remove the node: they need not cordon it
    lost: Taint | None  # that this driver's storage on the node is lost
    declared: Intent | None  # the intent in the annotation, if it is one and not spent
    announced: Intent | None  # the strictest of all intents that taints, annotations and programs state
    intent: Intent | None  # the same as far as it counts: a reboot while the node is cordoned; with Evacuate also a cordon that has lasted
    source: Source
    policy: NodePolicy  # that of the node's annotation, or of the flag
    forced: str  # the text of `force-drain`, unless it is spent
    record: Record  # with the words as they are now; the state is what an earlier look has noted
    cordoned_since: float | None  # since when the node has been cordoned and nobody has said what for; None: it is not, or somebody has
    cordon_counts_at: float | None  # when that will mean retire, if the cordon lasts until then; None: it does by now, or never will
    assumable: bool  # nobody says what a drain is for, not even in a wrong word, and no policy does: something may be assumed
    leaving: bool  # somebody has announced, in a word that is one, that the node goes for good, and nobody says anything else
    overdue: str  # why what blocks counts no more, by the deadline of a maintenance with Override; empty: it does
    maintenance: Intent | None  # what the maintenances are for that drain the node, as its sidecar has noted
    planned: bool  # the node is cordoned for a maintenance, which drains it later, and nobody else says anything
    noted: str  # the record as it stands on the Node
    left_behind: bool  # kured's annotation is there yet: it goes a moment after each reboot, so that is no problem
    problems: tuple[str, ...]

    @property
    def shut(self) -> bool:
        """Somebody keeps pods off the node, for whatever reason."""
        return self.cordoned or bool(self.evacuate) or bool(self.retiring)

    @property
    def drain_expected(self) -> bool:
        """Somebody wants to empty the node, or is about to."""
        return self.shut or self.announced is not None

    @property
    def draining(self) -> bool:
        """A drain has begun, or is asked for. A reboot that is announced for a cordon to come has not."""
        return self.cordoned or bool(self.evacuate) or self.intent is not None

    @property
    def overridden(self) -> str:
        """Why the node is let go whatever blocks; empty: it is not."""
        return f"{names.FORCE_DRAIN}: {self.forced}" if self.forced else self.overdue

    @property
    def wish(self) -> Wish | None:
        """The evacuation taint and the intent's annotation ask, unless the policy is Ignore. With Evacuate so do an autoscaler's taint, a
        cordon that kured has explained, and one that nobody explains once it has lasted."""
        if self.policy is NodePolicy.IGNORE:
            return None
        if self.evacuate:
            by = f"the taint {self.evacuate[0]} asks for it"
        elif self.declared is not None:
            by = f"the annotation {names.DRAIN_INTENT}: {self.declared} asks for it"
        elif self.maintenance is not None:
            by = f"a {names.MAINTENANCE_KIND} asks for it"
        elif self.policy is NodePolicy.EVACUATE and self.intent is not None and self.shut:
            by = {
                Source.AUTOSCALER: "an autoscaler's taint says that the node is to be removed",
                Source.KURED: "kured's annotation says that the node is to be rebooted",
            }.get(self.source, f"the node has been cordoned for a while, nobody says what for, and its policy is {NodePolicy.EVACUATE}")
        else:
            return None
        return Wish(by, Intent.REBOOT if self.announced is Intent.REBOOT else Intent.RETIRE, self.overridden)

    @property
    def notes(self) -> tuple[str, ...]:
        """For people: what is wrong, and what does not count yet."""
        waits = self.announced is Intent.REBOOT and self.intent is None
        early = (f"a reboot is announced ({self.source}): it counts only while the node is cordoned",) if waits else ()
        late = (_is_spent(names.KURED_REBOOTS),) if self.left_behind else ()
        return (*(f"marks on the Node: {problem}" for problem in self.problems), *early, *late)


def read(
    node: Node,
    driver: str,
    *,
    now: float,
    policy: NodePolicy = NodePolicy.IGNORE,
    before: Marks | None = None,
) -> Marks:
    """`now` is the wall clock, `policy` that of the flag. `before` is what this process read last: it knows since when a cordon lasts."""
    before = before if before is not None and before.uid == node.uid else None
    record, problem = record_of(node, driver, now=now)
    evacuate, retiring = _taints(node, (names.EVACUATE_TAINT,)), _taints(node, names.RETIRING_TAINTS)
    words = _words(node)
    noted = node.annotations.get(names.of_driver(driver, names.DRAIN_RECORD), "")
    if before is not None and before.noted == noted:
        # What this process has read since could not be noted yet, and nobody has changed the note.
        record = replace(record, used=before.record.used, spent=before.record.spent)
    record = _followed(record, words, shut=node.cordoned or bool(evacuate) or bool(retiring), asked=bool(_intent_of(node)))
    own, wrong_policy = _word(NodePolicy, node.annotations.get(names.NODE_DRAIN_POLICY, ""), names.NODE_DRAIN_POLICY)
    policy = own or policy
    is_ignored = bool(evacuate) and policy is NodePolicy.IGNORE
    ignored = f"the taint {evacuate[0]} has no effect, because the node drain policy is {policy}" if is_ignored else ""
    spent = frozenset(key for key, digest in words.items() if digest in record.spent)
    maintained = maintenance_of(node, driver)
    said = _what_is_said(node, evacuate, retiring, spent=spent, is_ignored=is_ignored, maintenance=maintained.intent)
    # A cordon of a maintenance is explained: it is there for as long as people want, and drains nothing yet.
    planned = maintained.prior is False and said.intent is None
    since = _cordoned_since(before, record, now) if node.cordoned and said.intent is None and not planned else None
    counts_at = since + CORDON_DELAY if since is not None and policy is NodePolicy.EVACUATE else None
    lasted = counts_at is not None and counts_at <= now
    counting = said.intent if node.cordoned or said.intent is not Intent.REBOOT else None
    return Marks(
        node=node.name,
        uid=node.uid,
        cordoned=node.cordoned,
        evacuate=evacuate,
        retiring=retiring,
        lost=next((taint for taint in node.taints if taint.key == names.of_driver(driver, names.STORAGE_LOST)), None),
        declared=said.declared,
        announced=said.intent,
        intent=Intent.RETIRE if lasted else counting,
        source=Source.CORDON if lasted else said.source,
        policy=policy,
        forced="" if names.FORCE_DRAIN in spent else node.annotations.get(names.FORCE_DRAIN, "").strip(),
        overdue=maintained.forced,
        record=record,
        cordoned_since=since,
        cordon_counts_at=None if lasted else counts_at,
        assumable=said.intent is None and not said.wrong and policy is not NodePolicy.EVACUATE,
        leaving=said.plainly_retire,
        maintenance=maintained.intent,
        planned=planned,
        noted=noted,
        left_behind=names.KURED_REBOOTS in spent,
        problems=tuple(filter(None, (problem, *said.problems, wrong_policy, ignored))),
    )


# --- words that are for one drain -------------------------------------------------------------------------------------


def _words(node: Node) -> dict[str, str]:
    """Those that stand on the node, by their annotation: the digest of each."""
    forced, kured = node.annotations.get(names.FORCE_DRAIN, "").strip(), node.annotations.get(names.KURED_REBOOTS)
    said: dict[str, str] = {names.DRAIN_INTENT: Intent.REBOOT} if _intent_of(node) == Intent.REBOOT else {}
    said |= {names.FORCE_DRAIN: forced} if forced else {}
    said |= {names.KURED_REBOOTS: kured} if kured is not None else {}
    return {key: _digest(key, text) for key, text in said.items()}


def _digest(key: str, text: str) -> str:
    return sha256(f"{key}={text}".encode()).hexdigest()[:16]


def counting_again(node: Node, key: str, text: str) -> dict[str, str]:
    """The records of all drivers, changed so that this word counts although it stood for an earlier drain. Empty: it does."""
    found = {}
    for annotation, stored in node.annotations.items():
        try:
            said = json.loads(stored) if annotation.endswith(f".{names.GROUP}/{names.DRAIN_RECORD}") else None
            where = ("spent",) if node.cordoned else ("used", "spent")
            if said and any(_digest(key, text) in (said.get(name) or ()) for name in where):
                left = {name: [item for item in said.get(name) or () if item != _digest(key, text)] for name in where}
                found[annotation] = json.dumps(said | left, separators=(",", ":"))
        except (ValueError, TypeError, AttributeError, RecursionError):
            continue  # what is not what a sidecar writes counts for nothing
    return found


def _followed(record: Record, words: Mapping[str, str], *, shut: bool, asked: bool) -> Record:
    """A word that is gone is forgotten, so that the same one may be written again for another drain. `asked`: the intent's annotation
    stands. Beside that `force-drain` counts although the node is not shut, and is used by that."""
    there = frozenset(words.values())
    in_use = there if shut else frozenset(digest for key, digest in words.items() if asked and key == names.FORCE_DRAIN)
    spent = (record.spent | record.used - in_use) & there
    return replace(record, used=in_use - spent, spent=spent)


def _cordoned_since(before: Marks | None, record: Record, now: float) -> float:
    """An earlier process may have seen the cordon begin: then the noted closing tells. A clock that was set back starts it anew."""
    if before is None:
        return now if record.closed_at is None else record.closed_at
    return now if before.cordoned_since is None else min(now, before.cordoned_since)


def _intent_of(node: Node) -> str:
    return node.annotations.get(names.DRAIN_INTENT, "").strip()


def _is_spent(key: str) -> str:
    return f"{key} was for a drain that is over, and counts for nothing until it is removed and set again: remove it"


# --- what people and programs say -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Said:
    intent: Intent | None  # the strictest; None: nobody says anything
    source: Source
    declared: Intent | None
    wrong: bool  # the text of the intent's annotation is no intent
    plainly_retire: bool
    """Somebody says that the node goes for good, and nobody anything else. `intent` takes more for that, to keep data: a taint without a
    word, or one that has no effect, or a typing error."""
    problems: tuple[str, ...]


def _what_is_said(
    node: Node,
    evacuate: tuple[Taint, ...],
    retiring: tuple[Taint, ...],
    *,
    spent: frozenset[str],
    is_ignored: bool,
    maintenance: Intent | None,
) -> _Said:
    text = _intent_of(node)
    written, problem = _word(Intent, text, names.DRAIN_INTENT)
    declared = None if names.DRAIN_INTENT in spent else written
    problems, said = [problem] if problem else [], list[tuple[Source, Intent, str]]()
    for taint in evacuate:
        by_taint, of_taint = _word(Intent, taint.value, f"the taint {taint.key}")
        problems += [of_taint] if of_taint else []
        if taint.value or declared is None:
            said.append((Source.TAINT, by_taint or Intent.RETIRE, f"the taint {taint}"))
    said += [(Source.ANNOTATION, declared, f"{names.DRAIN_INTENT}: {declared}")] if declared else []
    said += [(Source.MAINTENANCE, maintenance, f"a {names.MAINTENANCE_KIND}")] if maintenance else []
    said += [(Source.AUTOSCALER, Intent.RETIRE, f"the taint {taint}") for taint in retiring]
    if names.KURED_REBOOTS in node.annotations and names.KURED_REBOOTS not in spent:
        said.append((Source.KURED, Intent.REBOOT, f"the annotation {names.KURED_REBOOTS}"))
    in_words = any(source is not Source.TAINT for source, _, _ in said) or (not is_ignored and any(taint.value for taint in evacuate))
    plainly_retire = in_words and not problems and all(intent is Intent.RETIRE for _, intent, _ in said)
    if problem and said:
        # A wrong word starts nothing by itself, but beside any other word it counts as the stricter one.
        said.append((Source.ANNOTATION, Intent.RETIRE, f"{names.DRAIN_INTENT}: {quoted(text)}"))
    mild, strict = ([item for item in said if item[1] is wanted] for wanted in (Intent.REBOOT, Intent.RETIRE))
    if mild and strict:
        problems.append(f"{mild[0][2]} means reboot, {strict[0][2]} means retire: retire, the stricter one, applies")
    problems += [_is_spent(key) for key in sorted(spent - {names.KURED_REBOOTS})]
    source, intent, _ = next(iter((*strict, *mild)), (Source.NONE, None, ""))
    return _Said(intent, source, declared, bool(problem), plainly_retire, tuple(problems))


def _taints(node: Node, keys: Collection[str]) -> tuple[Taint, ...]:
    return tuple(sorted((taint for taint in node.taints if taint.key in keys), key=str))


def _word(words: type[W], text: str, key: str) -> tuple[W | None, str]:
    """The word, if it is one, and what is wrong; no text is no word, and nothing is wrong with it."""
    if text in [*words]:
        return words(text), ""
    return None, f"{key} says {quoted(text)}, which is not one of {', '.join(words)}" if text else ""
