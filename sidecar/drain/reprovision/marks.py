"""What is written on claims about making them anew, by people and by sidecars. Anybody may have written it, so it is read with distrust."""

import re
from dataclasses import dataclass
from typing import Final

from sidecar.drain import machine_mark
from sidecar.drain.machine_mark import Machine
from sidecar.drain.wording import quoted
from sidecar.model import names
from sidecar.model.objects import Notes

_NUMBER: Final = re.compile(r"[1-9][0-9]{0,3}")


@dataclass(frozen=True, slots=True)
class Words:
    """What the annotations of a claim say."""

    may_be_deleted: bool = False
    """Somebody says that the claim is made again after it is deleted."""
    peers: int | None = None
    """How many other replicas have to be ready; None: nobody says, so all."""
    marked_by: Machine | None = None
    """By which machine's evacuation it is made anew."""
    problem: str = ""
    """What cannot be understood, or must not stand there; empty: nothing."""


def read(notes: Notes) -> Words:
    said = dict(notes)
    deletion, peers, mark = said.get(names.ALLOW_CLAIM_DELETION), said.get(names.REPROVISION_PEERS), said.get(names.REPROVISIONED_BY)
    number = int(peers) if peers is not None and _NUMBER.fullmatch(peers) else None
    machine = None if mark is None else machine_mark.parse(mark)
    problems = (
        _wrong(names.ALLOW_CLAIM_DELETION, deletion) if deletion not in (None, "true", "false") else "",
        _wrong(names.REPROVISION_PEERS, peers) if peers is not None and number is None else "",
        _wrong(names.REPROVISIONED_BY, mark) if mark is not None and machine is None else "",
        _wrong(names.LOST_WITH, said[names.LOST_WITH]) if names.LOST_WITH in said else "",
    )
    return Words(deletion == "true", number, machine, "; ".join(filter(None, problems)))


def is_marked_by(notes: Notes, node: str) -> bool:
    """By this node, as the machine that it is or as one that had its name before."""
    mark = dict(notes).get(names.REPROVISIONED_BY)
    machine = None if mark is None else machine_mark.parse(mark)
    return machine is not None and machine.node == node


def _wrong(key: str, said: str | None) -> str:
    return f"the claim's annotation {key} is {quoted(said or '')}"
