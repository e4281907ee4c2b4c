"""Reads the marks of a node: its cordon and taints, what people and programs wrote on it, and what this driver's sidecar noted before.

Nothing is decided here. A text that cannot be understood becomes a problem with a name, and never counts as the milder of two things.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Final, TypeVar

from sidecar.drain.vocabulary import Intent
from sidecar.model import names, timestamps
from sidecar.model.nodes import Node, Taint
from sidecar.observe.sanitize import clipped

Word = TypeVar("Word", bound=StrEnum)


class NodePolicy(StrEnum):
    """What a sidecar does when somebody wants to drain the node."""

    IGNORE = "Ignore"
    NO_SCHEDULE = "NoSchedule"
    EVACUATE = "Evacuate"


class Source(StrEnum):
    """Who says what will happen to the node. If several say the same, the first of these is named."""

    TAINT = "taint"
    ANNOTATION = "annotation"
    AUTOSCALER = "autoscaler"
    KURED = "kured"
    NONE = "none"


class State(StrEnum):
    """How far an evacuation is: the value of the label."""

    PENDING = "Pending"
    IN_PROGRESS = "InProgress"
    SUCCESS = "Success"
    FAILED = "Failed"
    OVERRIDDEN = "Overridden"


OF_MARKS: Final = "marks on the Node: "
"""The beginning of a note about a problem with marks, by which events find it again."""
# Characters of a quoted text: an annotation may have 256 KiB.
_LONGEST: Final = 60
# The times that this driver's sidecar notes on the node.
_NOTED_TIMES: Final = (names.EVACUATION_STARTED_AT, names.CLOSED_AT)


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
    """The intent in the annotation, if it is one."""
    intent: Intent | None
    """The strictest of all intents that taints, annotations and programs state."""
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
        return self.cordoned or bool(self.evacuate) or self.intent is not None

    @property
    def override(self) -> str:
        """Why the node is to be let go whatever blocks; empty: it is not."""
        return "" if self.spent else self.force_drain

    @property
    def notes(self) -> tuple[str, ...]:
        """The problems as notes of a judgement."""
        return tuple(f"{OF_MARKS}{problem}" for problem in self.problems)


def read(node: Node, driver: str, *, now: float, default_policy: NodePolicy | None = None) -> Signals:
    """`now` is the wall clock: a noted time must not be later. `default_policy` is that of the flag; None: not known."""
    own = {
        name: node.annotations.get(names.of_driver(driver, name), "") for name in (*_NOTED_TIMES, names.MARKED_NODE, names.SPENT_OVERRIDE)
    }
    state_text = node.labels.get(names.of_driver(driver, names.EVACUATION_STATE), "")
    marked = bool(state_text or own[names.EVACUATION_STARTED_AT])
    former = _of_former_node(own[names.MARKED_NODE], node.uid)
    if former:
        own, state_text = dict.fromkeys(own, ""), ""
    evacuate = tuple(sorted((taint for taint in node.taints if taint.key == names.EVACUATE_TAINT), key=str))
    declared, declaring_problem = _word(Intent, node.annotations.get(names.DRAIN_INTENT, "").strip(), names.DRAIN_INTENT)
    intent, source, intent_problems = _intent(node, evacuate, declared)
    policy, policy_problem = _word(NodePolicy, node.annotations.get(names.NODE_DRAIN_POLICY, ""), names.NODE_DRAIN_POLICY)
    state, state_problem = _word(State, state_text, names.of_driver(driver, names.EVACUATION_STATE))
    started_at, start_problem = _noted_time(names.EVACUATION_STARTED_AT, own, now)
    closed_at, closing_problem = _noted_time(names.CLOSED_AT, own, now)
    force_drain = node.annotations.get(names.FORCE_DRAIN, "").strip()
    spent = bool(force_drain) and own[names.SPENT_OVERRIDE] == digest(force_drain)
    spent_problem = f"{names.FORCE_DRAIN} was for an evacuation that is over, and is not applied again: remove it" if spent else ""
    of_word = (declaring_problem, *intent_problems, policy_problem, _ignored_taint(evacuate, policy or default_policy))
    found = (former, *of_word, state_problem, start_problem, closing_problem, spent_problem)
    return Signals(
        node=node.name,
        uid=node.uid,
        cordoned=node.cordoned,
        retiring=_retiring(node),
        evacuate=evacuate,
        declared=declared,
        intent=intent,
        source=source,
        policy=policy,
        force_drain=force_drain,
        spent=spent,
        started_at=started_at,
        start_problem=start_problem,
        closed_at=closed_at,
        state=state,
        marked=marked,
        problems=tuple(problem for problem in found if problem),
    )


def digest(force_drain: str) -> str:
    """What is remembered of an override: enough to recognise the same text, and short."""
    return sha256(force_drain.encode()).hexdigest()[:16]


def _of_former_node(marked: str, uid: str) -> str:
    return f"marks of a former node of this name (uid {_quoted(marked)}) are not applied" if marked and marked != uid else ""


def _quoted(text: str) -> str:
    return repr(clipped(text, _LONGEST))


def _word(words: type[Word], text: str, key: str) -> tuple[Word | None, str]:
    if not text:
        return None, ""
    try:
        return words(text), ""
    except ValueError:
        return None, f"{key} says {_quoted(text)}, which is not one of {', '.join(words)}"


def _noted_time(name: str, own: Mapping[str, str], now: float) -> tuple[float | None, str]:
    text = own[name]
    at = timestamps.to_seconds(text)
    if not text:
        return None, ""
    if at is None:
        return None, f"{name} says {_quoted(text)}, which is not a time"
    return (None, f"{name} says {clipped(text, _LONGEST)}, which is in the future") if at > now else (at, "")


def _intent(node: Node, evacuate: tuple[Taint, ...], annotation: Intent | None) -> tuple[Intent | None, Source, tuple[str, ...]]:
    """Of several the strictest. A wrong word starts nothing by itself, but beside any other word it counts as the stricter one."""
    noted = node.annotations.get(names.DRAIN_INTENT, "").strip()
    problems: list[str] = []
    said: list[tuple[Source, Intent, str]] = []
    for taint in evacuate:
        word, problem = _word(Intent, taint.value, f"the taint {taint.key}")
        problems += [problem] if problem else []
        if taint.value or not annotation:
            said.append((Source.TAINT, word or Intent.RETIRE, f"the taint {taint}"))
    if annotation:
        said.append((Source.ANNOTATION, annotation, f"{names.DRAIN_INTENT}: {annotation}"))
    said += _of_programs(node)
    if noted and not annotation and said:
        said.append((Source.ANNOTATION, Intent.RETIRE, f"{names.DRAIN_INTENT}: {_quoted(noted)}"))
    return *_strictest(said), (*problems, *_contradictions(said))


def _retiring(node: Node) -> tuple[Taint, ...]:
    return tuple(sorted((taint for taint in node.taints if taint.key in names.RETIRING_TAINTS), key=str))


def _ignored_taint(evacuate: tuple[Taint, ...], policy: NodePolicy | None) -> str:
    if not evacuate or policy is not NodePolicy.IGNORE:
        return ""
    remedy = f"set --node-drain-policy, or {names.NODE_DRAIN_POLICY} on the node"
    return f"the taint {evacuate[0]} has no effect, because the node drain policy is {policy}: {remedy}"


def _of_programs(node: Node) -> Iterable[tuple[Source, Intent, str]]:
    for taint in _retiring(node):
        yield Source.AUTOSCALER, Intent.RETIRE, f"the taint {taint}"
    for key in names.REBOOTING_NOTES:
        if key in node.annotations:
            yield Source.KURED, Intent.REBOOT, f"the annotation {key}"


def _strictest(said: list[tuple[Source, Intent, str]]) -> tuple[Intent | None, Source]:
    for wanted in (Intent.RETIRE, Intent.REBOOT):
        for source, intent, _ in said:
            if intent is wanted:
                return intent, source
    return None, Source.NONE


def _contradictions(said: list[tuple[Source, Intent, str]]) -> Iterable[str]:
    mild, strict = ([text for _, intent, text in said if intent is wanted] for wanted in (Intent.REBOOT, Intent.RETIRE))
    if mild and strict:
        yield f"{mild[0]} means reboot, {strict[0]} means retire: retire, the stricter one, applies"
