"""What a node's own sidecar has written about the node, for whoever looks from outside: from its report, or else from its conditions."""

from collections.abc import Iterable
from dataclasses import dataclass

from sidecar.drain.publish import validity
from sidecar.drain.publish.stored import NOTHING_HELD, Held, entries, held_of, mapping, of_this_node, seconds, text, texts
from sidecar.drain.vocabulary import Intent, Status
from sidecar.drain.wording import ABOUT_REPLICAS, LATELY
from sidecar.model import names
from sidecar.model.objects import Json

_KEYS = {Intent.REBOOT: ("drain", names.DRAIN_READY), Intent.RETIRE: ("retire", names.RETIRE_READY)}


@dataclass(frozen=True, slots=True)
class Said:
    """One verdict as it is stored."""

    status: Status
    reason: str
    since: float | None
    message: str = ""
    """With what its first blocker says."""


@dataclass(frozen=True, slots=True)
class OwnWord:
    """Both verdicts, and how long they hold."""

    drain: Said
    retire: Said
    observed_at: float | None
    """None: it does not say."""
    valid_until: float | None
    """None: it does not say, and counts no more."""
    evacuation: str = ""
    deadline: float | None = None
    """Of the evacuation."""
    replicas: tuple[str, ...] = ()
    """Which one is made anew next, and its locks: what no other node sees."""

    lately: tuple[str, ...] = ()
    """What still blocks for a moment because its pod has only just left, and until when."""
    held: Held = NOTHING_HELD
    gate: str = ""
    """Whether a gate stands; empty: the sidecar builds none, or does not say."""

    def verdict(self, intent: Intent) -> Said:
        return self.drain if intent is Intent.REBOOT else self.retire

    def is_stale(self, now: float) -> bool:
        return not validity.counts(self.valid_until, now=now)

    def status(self, intent: Intent, now: float) -> Status:
        """What has run out counts as Unknown."""
        return Status.UNKNOWN if self.is_stale(now) else self.verdict(intent).status


def own_word(report: Json, conditions: Iterable[Json], *, driver: str, node_uid: str) -> OwnWord | None:
    """`report` is the status of the stored one, empty if there is none. None: the sidecar says nothing, or spoke of a former node."""
    status = of_this_node(report, node_uid)
    by_type = {text(condition, "type"): condition for condition in conditions}
    said = {}
    for intent, (key, kind) in _KEYS.items():
        stored = mapping(mapping(status, "verdicts"), key) or by_type.get(names.condition(driver, kind), {})
        blocking = (entry for entry in entries(status, "blockers") if str(intent) in texts(entry, "blocks"))
        said[intent] = _said(stored, text(next(blocking, {}), "message"))
    drain, retire = said[Intent.REBOOT], said[Intent.RETIRE]
    if drain is None or retire is None:
        return None
    ends = [end for end in map(validity.of_condition, validity.ours(by_type.values(), driver)) if end is not None]
    return OwnWord(
        drain,
        retire,
        observed_at=seconds(status, "observedAt"),
        valid_until=validity.of_report(status) if status else min(ends, default=None),
        evacuation=text(mapping(status, "evacuation"), "state"),
        deadline=seconds(mapping(status, "evacuation"), "deadline"),
        lately=tuple(_still_used(status)),
        held=held_of(status),
        gate=_gate(mapping(status, "gate")),
        replicas=tuple(note for note in texts(status, "notes") if note.startswith(ABOUT_REPLICAS)),
    )


def _still_used(status: Json) -> Iterable[str]:
    for blocker in entries(status, "blockers"):
        if LATELY in (message := text(blocker, "message")):
            yield f"{'/'.join(filter(None, (text(blocker, 'namespace'), text(blocker, 'name'))))}: {message}"


def _gate(status: Json) -> str:
    if status.get("enabled") is not True:
        return ""
    why = text(status, "why")
    return "the gate is shut" if status.get("held") is True else f"no gate holds{f': {why}' if why else ''}"


def _said(stored: Json, first: str) -> Said | None:
    message = text(stored, "message") + (f" ({first})" if first else "")
    try:
        return Said(Status(text(stored, "status")), text(stored, "reason"), seconds(stored, "lastTransitionTime"), message)
    except ValueError:
        return None
