"""`explain node NAME`: may it be drained, may it be retired, what blocks that; of any node, before anybody cordons it, from anywhere.

The judgement is the drain room's, made of lists fetched just now. What only the sidecar of the node knows (creations that were begun,
and what its driver has without a PersistentVolume) is not seen from here; the answer says so.
"""

import json
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from sidecar.config import Config
from sidecar.drain.assess import assess
from sidecar.drain.assessment import Assessment
from sidecar.drain.blockers import some
from sidecar.drain.gathering import Gathering
from sidecar.drain.picture import Picture, snapshot_of
from sidecar.drain.table import as_json, render
from sidecar.drain.words import Intent, Policy
from sidecar.errors import Fatal
from sidecar.explain.question import Question
from sidecar.wiring import Instruments, open_doors

_FROM_OUTSIDE: Final = (
    "creations that only the node's own sidecar knows of, and what its driver has without a PersistentVolume, are not seen from here"
)


async def answer(config: Config, question: Question) -> str:
    """The judgement for each driver of the node, or for the one that was named, as it is printed."""
    doors = await open_doors(config, Instruments(), on_link=lambda _: None)
    try:
        picture = await Gathering(doors.kube, question.name, now=time.time()).look()
    finally:
        await doors.close()
    default = Policy(config.drain_default_policy) if config.drain_default_policy else None
    judged = judge(picture, question.driver, default_policy=default)
    if not judged and picture.ignorance:
        unread = "; ".join(picture.ignorance)
        raise Fatal(f"which drivers have volumes on node {question.name} is not known, so name one with --driver: {unread}")
    return _as_json(judged) if question.as_json else _as_text(judged, question)


def judge(picture: Picture, driver: str, *, default_policy: Policy | None) -> tuple[Assessment, ...]:
    """Without a name: all drivers that have something on the node, or could have."""
    if driver and not _is_known(picture, driver):
        known = ", ".join(picture.all_drivers()) or "none"
        nobody = f"nothing here has to do with a driver {driver}; check its name: those of the node are {known}"
        picture = replace(picture, ignorance=(*picture.ignorance, nobody))
    drivers = (driver,) if driver else picture.all_drivers()
    assessments = (assess(snapshot_of(picture, name, default_policy=default_policy)) for name in drivers)
    return tuple(replace(one, notes=(*one.notes, *_strays(picture, one.driver), *_foreign(picture), _FROM_OUTSIDE)) for one in assessments)


def _is_known(picture: Picture, driver: str) -> bool:
    if driver in picture.all_drivers() or driver in picture.strays or driver in picture.doubtful:
        return True
    return any(class_.provisioner == driver for class_ in picture.classes)


def _foreign(picture: Picture) -> Iterable[str]:
    if picture.foreign:
        yield f"PersistentVolumes of no CSI driver on this node, which nobody looks after here: {picture.foreign}"


def _strays(picture: Picture, driver: str) -> Iterable[str]:
    if volumes := picture.strays.get(driver):
        yield f"labels of nodes do not tell where these volumes lie, nor do they say who made them: {some(volumes)}"


def _as_json(judged: tuple[Assessment, ...]) -> str:
    return json.dumps([as_json(one) for one in judged], indent=2)


def _as_text(judged: tuple[Assessment, ...], question: Question) -> str:
    if not judged:
        return f"node {question.name}: no CSI driver has, or could have, volumes that only this node can reach"
    intent = Intent(question.intent) if question.intent else None
    return "\n\n".join(render(one, intent=intent) for one in judged)
