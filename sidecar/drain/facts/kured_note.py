"""What becomes of the annotation by which kured announces a reboot: each value counts while the node is cordoned, and for one cordon.

kured writes the time at which a reboot became needed, waits for its turn, and takes the annotation away after the uncordon. Where it is
left behind the next drain need not be for a reboot. So a mark on the node says how far it is with which value, by its digest.
"""

import re
from dataclasses import dataclass
from typing import Final

from sidecar.drain.facts import reboot_note
from sidecar.drain.facts.own_notes import digest
from sidecar.drain.facts.reboot_note import RebootNote
from sidecar.drain.vocabulary import Intent
from sidecar.model import names
from sidecar.model.nodes import Node

_MARK: Final = re.compile(rf"({'|'.join(RebootNote)}) ([0-9a-f]{{16}})")


@dataclass(frozen=True, slots=True)
class KuredNote:
    """The annotation and the mark about it."""

    value: str | None
    """What kured has written; None: nothing."""
    state: RebootNote | None
    """How far it is with this value."""
    noted: str
    """What the mark says."""

    @property
    def counts(self) -> bool:
        """kured announces a reboot, for this cordon or for one to come."""
        return self.value is not None and self.state is not RebootNote.SPENT

    @property
    def mark(self) -> str | None:
        """What the mark should say; None: there should be none."""
        return None if self.value is None or self.state is None else f"{self.state} {digest(self.value)}"

    @property
    def note(self) -> str:
        """For people; empty: there is nothing to say. kured itself takes the annotation away a moment after it has uncordoned."""
        if self.value is None or self.counts:
            return ""
        return f"{names.KURED_REBOOTS} was for a cordon that is over, and counts for nothing until kured writes another: remove it"


def read(node: Node, noted: str, *, former: bool, before: KuredNote | None) -> KuredNote:
    """`noted`: what the mark says. `former`: for a former node of this name. `before`: what this process read last of this node."""
    value, known = node.annotations.get(names.KURED_REBOOTS), _known(noted, former, before)
    declared = None if value is None else Intent.REBOOT
    state = reboot_note.followed(_of_value(known, value), declared=declared, cordoned=node.cordoned)
    return KuredNote(value, state, noted)


def _known(noted: str, former: bool, before: KuredNote | None) -> str:
    """This process may know more than the mark, which is written later. Where people have taken a mark away, that counts."""
    if before is not None and before.noted == noted:
        return before.mark or ""
    if before is not None and noted and before.state is RebootNote.SPENT:
        return before.mark or ""
    return noted.replace(RebootNote.IN_EFFECT, RebootNote.SPENT) if former else noted


def _of_value(known: str, value: str | None) -> RebootNote | None:
    """Of another value a mark says nothing. A text that is none of ours counts as the stricter one."""
    found = _MARK.fullmatch(known)
    if value is None or not known:
        return None
    if not found:
        return RebootNote.SPENT
    return RebootNote(found[1]) if found[2] == digest(value) else None
