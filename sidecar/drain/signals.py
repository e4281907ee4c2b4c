"""What a node's own marks say: its cordon and taints, what people and programs wrote on it, what this driver's sidecar noted before.

Nothing is decided here. Garbage is named, and never taken for the milder of two things.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Final, TypeVar

from sidecar.drain import instants
from sidecar.drain.words import Intent
from sidecar.model import names
from sidecar.model.nodes import Node, Taint
from sidecar.observe.plain import clipped

Word = TypeVar("Word", bound=StrEnum)


class NodePolicy(StrEnum):
    """What a sidecar makes of a node that somebody wants to empty."""

    IGNORE = "Ignore"
    NO_SCHEDULE = "NoSchedule"
    EVACUATE = "Evacuate"


class Source(StrEnum):
    """Who says what will happen to the node. When several say the same, the first of these counts."""

    TAINT = "taint"
    ANNOTATION = "annotation"
    AUTOSCALER = "autoscaler"
    KURED = "kured"
    NONE = "none"


class State(StrEnum):
    """How far an evacuation is; the value of the label."""

    PENDING = "Pending"
    IN_PROGRESS = "InProgress"
    SUCCESS = "Success"
    FAILED = "Failed"
    OVERRIDDEN = "Overridden"


OF_MARKS: Final = "marks on the Node: "
"""How a note of a judgement begins that tells of a problem."""
# Characters of what somebody wrote, where it is quoted.
_LONGEST: Final = 60
# All that says an evacuation was begun here, or a closing noted.
_ANCHORS: Final = (names.EVACUATION_STARTED_AT, names.CLOSED_AT)


@dataclass(frozen=True, slots=True)
class Signals:
    """One look at a node's marks."""

    node: str
    uid: str
    cordoned: bool
    retiring: tuple[Taint, ...]
    """The taints of autoscalers that are about to remove the node, which need not cordon it."""
    evacuate: tuple[Taint, ...]
    """The taints that ask for an evacuation; more than one where there are several effects."""
    declared: Intent | None
    """What people have written that will happen: the annotation's word, if it is one."""
    intent: Intent | None
    """The strictest of all that is said."""
    source: Source
    policy: NodePolicy | None
    """What the node's annotation says; None: nothing, or no policy."""
    force_drain: str
    """What its annotation says, applied or not."""
    spent: bool
    """That text was applied to an evacuation that is over, and is not applied again."""
    started_at: float | None
    start_problem: str
    """Why the start that is written there cannot be used; empty where it can, and where none is."""
    closed_at: float | None
    state: State | None
    marked: bool
    """There is a mark of an evacuation here, whether it can be read or not."""
    problems: tuple[str, ...]

    @property
    def shut(self) -> bool:
        """Whether somebody keeps pods off the node, whatever for."""
        return self.cordoned or bool(self.retiring)

    @property
    def override(self) -> str:
        """Why the node shall be let go regardless; empty: it shall not."""
        return "" if self.spent else self.force_drain

    @property
    def notes(self) -> tuple[str, ...]:
        """The problems, as they stand among the notes of a judgement."""
        return tuple(f"{OF_MARKS}{problem}" for problem in self.problems)


def read(node: Node, driver: str, *, now: float, usual: NodePolicy | None = None) -> Signals:
    """`now` is the wall clock: what is noted as past must not lie ahead of it. `usual` is the flag's policy; None: not known."""
    own = {name: node.annotations.get(names.of_driver(driver, name), "") for name in (*_ANCHORS, names.MARKED_NODE, names.SPENT_OVERRIDE)}
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
    started_at, start_problem = _anchor(names.EVACUATION_STARTED_AT, own, now)
    closed_at, closing_problem = _anchor(names.CLOSED_AT, own, now)
    force_drain = node.annotations.get(names.FORCE_DRAIN, "").strip()
    spent = bool(force_drain) and own[names.SPENT_OVERRIDE] == digest(force_drain)
    spent_problem = f"{names.FORCE_DRAIN} was for an evacuation that is over, and is not applied again: remove it" if spent else ""
    of_word = (declaring_problem, *intent_problems, policy_problem, _unheeded(evacuate, policy or usual))
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
    """What is remembered of an override: enough to know the same text again."""
    return sha256(force_drain.encode()).hexdigest()[:16]


def _of_former_node(marked: str, uid: str) -> str:
    return f"what was noted for a former node (uid {_quoted(marked)}) under this name is not applied" if marked and marked != uid else ""


def _quoted(text: str) -> str:
    return repr(clipped(text, _LONGEST))


def _word(words: type[Word], text: str, key: str) -> tuple[Word | None, str]:
    if not text:
        return None, ""
    try:
        return words(text), ""
    except ValueError:
        return None, f"{key} says {_quoted(text)}, which is none of {', '.join(words)}"


def _anchor(name: str, own: Mapping[str, str], now: float) -> tuple[float | None, str]:
    text = own[name]
    at = instants.to_seconds(text)
    if not text:
        return None, ""
    if at is None:
        return None, f"{name} says {_quoted(text)}, which is no point in time"
    return (None, f"{name} says {clipped(text, _LONGEST)}, which lies in the future") if at > now else (at, "")


def _intent(node: Node, evacuate: tuple[Taint, ...], annotation: Intent | None) -> tuple[Intent | None, Source, tuple[str, ...]]:
    """Of several the stricter. Garbage starts nothing by itself, but beside anything else it counts as the stricter."""
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


def _unheeded(evacuate: tuple[Taint, ...], policy: NodePolicy | None) -> str:
    if not evacuate or policy is not NodePolicy.IGNORE:
        return ""
    remedy = f"set --node-drain-policy, or {names.NODE_DRAIN_POLICY} on the node"
    return f"the taint {evacuate[0]} is not applied, for the node drain policy is {policy}: {remedy}"


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
        yield f"{mild[0]} means reboot, {strict[0]} means retire: retire, the stricter, is taken"
