"""Reads the line of `explain`, on which flags of `run` may stand too; and what an answer is."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.commands.forms import STRUCTURED, WIDE
from sidecar.commands.line import CommandParser, Line
from sidecar.commands.printing import program
from sidecar.commands.reach import Reach
from sidecar.commands.table import flags_of, usage
from sidecar.config.errors import UsageError
from sidecar.config.words import quoted
from sidecar.drain.words import Status

CLAIM, POD, NODE, NODES, VOLUMES, MAINTENANCE = "pvc", "pod", "node", "nodes", "volumes", "maintenance"
_KINDS: Final = {
    "pvc": CLAIM,
    "persistentvolumeclaim": CLAIM,
    "pod": POD,
    "po": POD,
    "node": NODE,
    "no": NODE,
    "nodes": NODES,
    "volumes": VOLUMES,
    "pv": VOLUMES,
    "maintenance": MAINTENANCE,
    "plannedmaintenance": MAINTENANCE,
    "pm": MAINTENANCE,
}
_NAMED: Final = (CLAIM, POD, NODE, MAINTENANCE)
"""Kinds of questions about one object. The others are about all."""
_NAMESPACED: Final = (CLAIM, POD)
_JUDGED: Final = (NODE, NODES)


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be explained, and in which form."""

    kind: str
    namespace: str
    """Empty: that of the kubeconfig's context."""
    name: str
    node: str
    driver: str
    intent: str
    form: str
    exit_code: bool
    flags: tuple[str, ...]
    reach: Reach
    file: str = ""

    @property
    def is_structured(self) -> bool:
        """The answer is for programs."""
        return self.form in STRUCTURED


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    statuses: tuple[Status, ...] = ()
    """For --exit-code."""


_CODES: Final = {Status.TRUE: 0, Status.UNKNOWN: 4, Status.FALSE: 3}
"""From the best to the worst. 1 and 2 are for what could not be read: the cluster, the command line."""


def strictness(status: Status) -> int:
    """The higher, the stricter."""
    return tuple(_CODES).index(status)


def exit_code(statuses: Iterable[Status]) -> int:
    """Of the worst. Nothing at all is ready."""
    return _CODES[max(statuses, key=strictness, default=Status.TRUE)]


def read_question(words: Sequence[str]) -> Question | None:
    """None where help is wanted."""
    line = CommandParser(usage("explain"), flags_of("explain")).read(words)
    if line is None:
        return None
    kind = _kind(line)
    namespace, name = _name(kind, line.positional[1], line.own.namespace) if kind in _NAMED and not line.own.filename else ("", "")
    return Question(
        kind,
        namespace,
        name,
        node=line.own.node,
        driver=line.own.driver,
        intent=line.own.intent,
        form=line.own.output,
        exit_code=line.own.exit_code,
        flags=line.of_run,
        reach=Reach.of(line.own),
        file=line.own.filename,
    )


def _kind(line: Line) -> str:
    """Raises UsageError where what was given does not go together."""
    words = line.positional
    if not words or words[0] not in _KINDS:
        raise _wrong(f"there is no kind {quoted(words[0])}" if words else "it is not said what to explain")
    kind, count = _KINDS[words[0]], len(words) - 1
    named = count + bool(line.own.filename)
    if line.own.filename and kind != MAINTENANCE:
        raise _wrong(f"explain {kind} takes no --filename")
    if kind in _NAMED and named != 1:
        raise _wrong(f"explain {kind} takes one name{' or one --filename' if kind == MAINTENANCE else ''}, and not {named}")
    if kind not in _NAMED and count:
        raise _wrong(f"explain {kind} takes no name, as it is about all of them: {quoted(words[1])}")
    if line.own.intent and kind not in _JUDGED:
        raise _wrong(f"explain {kind} takes no --intent: it is not about a drain's")
    if line.own.exit_code and kind == VOLUMES:
        raise _wrong(f"explain {kind} takes no --exit-code: it gives no verdict")
    if line.own.output == WIDE and kind in _NAMED:
        raise _wrong(f"explain {kind} has no output {WIDE}: it tells all it knows")
    if line.own.node and kind != VOLUMES:
        raise _wrong(f"explain {kind} takes no --node")
    if line.own.driver and kind == CLAIM:
        raise _wrong(f"explain {kind} takes no --driver: the class of the claim says it")
    if line.own.namespace and kind not in _NAMESPACED:
        raise _wrong(f"explain {kind} takes no --namespace: it is about all of them")
    return kind


def _name(kind: str, word: str, namespace: str) -> tuple[str, str]:
    """Namespace and name. The namespace may stand before the name or in its flag."""
    before, slash, name = word.rpartition("/")
    if not name or "/" in before or bool(slash) is not bool(before) or (slash and kind not in _NAMESPACED):
        raise _wrong(f"{quoted(word)} is no {'NAMESPACE/NAME' if kind in _NAMESPACED else f'name of a {kind}'}")
    if before and namespace not in ("", before):
        raise _wrong(f"{quoted(word)} is in another namespace than --namespace={namespace} says")
    return (before or namespace, name) if kind in _NAMESPACED else ("", name)


def _wrong(what: str) -> UsageError:
    kinds = f"{', '.join((CLAIM, POD, NODE, NODES, VOLUMES))} or {MAINTENANCE}"
    return UsageError([f"{what}; explain is asked about {kinds}, and `{program()} explain --help` shows how"])
