"""Which marks of ours should be on a node, and the patch that makes it so.

Every write to a Node is a JSON merge patch that names our own keys and nothing else; what others have there is not even read back.
Its `metadata.uid` is a condition: if another machine has come under the node's name, the API server takes it for a wish to change the
uid and refuses it as Invalid. Where a key that is not ours alone is decided on (the autoscalers'), `metadata.resourceVersion` has to
be handed in as well, so that two drivers' sidecars that decide at the same moment do not both count on the other.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from sidecar.drain import evacuation, instants
from sidecar.drain.evacuation import Begin, Restart, Undo
from sidecar.drain.signals import Signals, digest
from sidecar.drain.standing import noted_at
from sidecar.drain.words import Status
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json
from sidecar.model.standing import Standing

PROTECTING: Final = (names.SCALE_DOWN_DISABLED, names.DO_NOT_DISRUPT)
_PROTECTED: Final = "true"

Values = Mapping[str, str | None]
"""By key: what it should say; None: it should not be there."""


def _nothing() -> Values:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Marks:
    """What should be on the node. Keys that are not named stay as they are."""

    annotations: Values = field(default_factory=_nothing)
    labels: Values = field(default_factory=_nothing)

    def __or__(self, other: "Marks") -> "Marks":
        return Marks({**self.annotations, **other.annotations}, {**self.labels, **other.labels})


def wanted(signals: Signals, driver: str, *, standing: Standing, decision: evacuation.Decision) -> Marks:
    """Once the decision is carried out: all that notes a closing and an evacuation, each key with its value or None."""
    state = evacuation.state_after(decision, signals.state)
    started_at, closed_at = _start(signals, decision), noted_at(standing)
    spent = digest(signals.force_drain) if _override_is_over(signals, standing, decision) else None
    annotations = {
        names.EVACUATION_STARTED_AT: started_at,
        names.CLOSED_AT: closed_at or None,
        names.MARKED_NODE: signals.uid if started_at or closed_at else None,
        names.SPENT_OVERRIDE: spent,
    }
    return Marks(
        {names.of_driver(driver, name): value for name, value in annotations.items()},
        {names.of_driver(driver, names.EVACUATION_STATE): state and state.value},
    )


def protection(node: Node, driver: str, *, needed: bool | None) -> Marks:
    """The autoscalers' annotations. Ours are those in our marker; what a user has set is neither changed nor taken away.

    `needed` as `needs_protection` says; None: all stays as it is. A key that another driver's sidecar has set becomes ours too,
    and goes with the last of them.
    """
    if needed is None:
        return Marks()
    own, others = _claimed(node, names.of_driver(driver, names.AUTOSCALER_MARKER)), _claimed_by_others(node, driver)
    marker = names.of_driver(driver, names.AUTOSCALER_MARKER)
    if needed:
        keys = [key for key in PROTECTING if key not in node.annotations or _is_ours(node, key, own | others)]
        return Marks({**dict.fromkeys(keys, _PROTECTED), marker: json.dumps(keys) if keys else None})
    gone = [key for key in PROTECTING if key in own - others and _is_ours(node, key, own)]
    return Marks({**dict.fromkeys(gone), marker: None})


def needs_protection(*, enabled: bool, retire: Status, overridden: bool) -> bool | None:
    """Whether autoscalers are to leave the node alone: as long as something lies here that must not be lost. None: not known."""
    if not enabled or overridden or retire is Status.TRUE:
        return False
    return True if retire is Status.FALSE else None


def none(node: Node, driver: str) -> Marks:
    """For an uninstall: nothing of this driver's sidecar is left. What people wrote is theirs and stays."""
    prefix = names.of_driver(driver, "")
    annotations = {key: None for key in node.annotations if key.startswith(prefix)}
    labels = {key: None for key in node.labels if key.startswith(prefix)}
    return protection(node, driver, needed=False) | Marks(annotations, labels)


def patch(node: Node, marks: Marks, *, resource_version: str = "") -> Json | None:
    """The merge patch that takes the node from what it is to what it should be; None: it is so already."""
    annotations, labels = _difference(node.annotations, marks.annotations), _difference(node.labels, marks.labels)
    if not annotations and not labels:
        return None
    meta: Json = {"uid": node.uid} | ({"resourceVersion": resource_version} if resource_version else {})
    meta |= {"annotations": annotations} if annotations else {}
    meta |= {"labels": labels} if labels else {}
    return {"metadata": meta}


def _difference(have: Mapping[str, str], want: Values) -> dict[str, str | None]:
    return {key: value for key, value in sorted(want.items()) if have.get(key) != value}


def _start(signals: Signals, decision: evacuation.Decision) -> str | None:
    match decision:
        case Begin(at) | Restart(at):
            return instants.to_text(at)
        case Undo():
            return None
        case _:
            return None if signals.started_at is None else instants.to_text(signals.started_at)


def _override_is_over(signals: Signals, standing: Standing, decision: evacuation.Decision) -> bool:
    """It ends with what it was for, and people's annotation may stay behind: then it is remembered that it has had its time."""
    if not signals.force_drain:
        return False
    opened = signals.closed_at is not None and not standing.closed
    return signals.spent or opened or isinstance(decision, Undo)


def _claimed(node: Node, marker: str) -> set[str]:
    """Only keys of autoscalers: a marker that somebody edited cannot make us take away anything else."""
    try:
        keys = json.loads(node.annotations.get(marker, "[]"))
    except (ValueError, RecursionError):
        return set()
    return {key for key in PROTECTING if key in keys} if isinstance(keys, list) else set()


def _claimed_by_others(node: Node, driver: str) -> set[str]:
    own, suffix = names.of_driver(driver, names.AUTOSCALER_MARKER), f".{names.GROUP}/{names.AUTOSCALER_MARKER}"
    return {key for marker in node.annotations if marker.endswith(suffix) and marker != own for key in _claimed(node, marker)}


def _is_ours(node: Node, key: str, claimed: set[str]) -> bool:
    return key in claimed and node.annotations.get(key) == _PROTECTED
