"""What becomes of a reboot that people announce by the annotation: it counts while the node is cordoned, and is spent by the uncordon.

People forget to remove the annotation, and the next drain need not be for a reboot. So a mark on the node says how far it is.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from sidecar.drain.vocabulary import Intent
from sidecar.model import names
from sidecar.model.nodes import Node

_OF_ANY_DRIVER: Final = f".{names.GROUP}/{names.REBOOT_INTENT}"


class RebootNote(StrEnum):
    """The value of the mark. There is none for a reboot that is announced for a cordon to come."""

    IN_EFFECT = "InEffect"
    """The node is cordoned, and the annotation says that this is for a reboot."""
    SPENT = "Spent"
    """The node has been uncordoned since. The annotation counts for nothing until it is removed."""


def noted(text: str) -> RebootNote | None:
    """What the mark says. A text that is none of ours counts as the stricter one."""
    if not text:
        return None
    return RebootNote.IN_EFFECT if text == RebootNote.IN_EFFECT else RebootNote.SPENT


def followed(known: RebootNote | None, *, declared: Intent | None, cordoned: bool) -> RebootNote | None:
    """What the mark should say now. `declared` is the intent in the annotation, `known` what is known of it so far."""
    if declared is not Intent.REBOOT:
        return None
    if known is RebootNote.SPENT or (known is RebootNote.IN_EFFECT and not cordoned):
        return RebootNote.SPENT
    return RebootNote.IN_EFFECT if cordoned else None


def spent_marks(node: Node) -> Iterable[str]:
    """The keys of those marks, of whatever driver, by which a reboot in the annotation counts for nothing."""
    for key, text in node.annotations.items():
        if key.endswith(_OF_ANY_DRIVER) and followed(noted(text), declared=Intent.REBOOT, cordoned=node.cordoned) is RebootNote.SPENT:
            yield key
