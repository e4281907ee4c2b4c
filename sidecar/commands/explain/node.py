"""`explain node NAME`: may the node be drained, may it be retired, and what blocks that. Works for any node, from anywhere.

The judgement is that of the drain room, on lists that are fetched now. What only the node's own sidecar knows (creations that have
begun, and volumes that its driver has without a PersistentVolume) is not visible from here, and the answer says so.
"""

import json
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from sidecar.commands.explain.question import Question
from sidecar.config.config import Config
from sidecar.doors import Instruments, open_doors
from sidecar.drain.facts.assembly import assemble
from sidecar.drain.facts.cluster_listing import ClusterListing
from sidecar.drain.facts.listed_node import ListedNode
from sidecar.drain.judgement.assess import assess
from sidecar.drain.judgement.assessment import Assessment
from sidecar.drain.publish.as_text import as_json, render
from sidecar.drain.vocabulary import Intent, Policy
from sidecar.drain.wording import first_few
from sidecar.errors import Fatal

_FROM_OUTSIDE: Final = (
    "not visible from outside the node: creations that only its own sidecar knows of, and volumes that its driver has without a "
    "PersistentVolume"
)


async def answer(config: Config, question: Question) -> str:
    """The text to print: the judgement for each driver of the node, or for the one that was named."""
    doors = await open_doors(config, Instruments(), on_link=lambda _: None)
    try:
        listed = await ClusterListing(doors.kube, question.name, now=time.time()).look()
    finally:
        await doors.close()
    default = Policy(config.drain_default_policy) if config.drain_default_policy else None
    judged = judge(listed, question.driver, default_policy=default)
    if not judged and listed.ignorance:
        unread = "; ".join(listed.ignorance)
        raise Fatal(f"the drivers of node {question.name} could not be listed, so name one with --driver: {unread}")
    return _as_json(judged) if question.as_json else _as_text(judged, question)


def judge(listed: ListedNode, driver: str, *, default_policy: Policy | None) -> tuple[Assessment, ...]:
    """Without a driver's name: for all drivers that have something on the node, or could have."""
    if driver and not _is_known(listed, driver):
        known = ", ".join(listed.all_drivers()) or "none"
        nobody = f"driver {driver} is not known on this node; check the name: the drivers of the node are {known}"
        listed = replace(listed, ignorance=(*listed.ignorance, nobody))
    drivers = (driver,) if driver else listed.all_drivers()
    assessments = (assess(assemble(listed.facts_of(name), now=listed.at, default_policy=default_policy)) for name in drivers)
    return tuple(
        replace(one, notes=(*one.notes, *_unlocated(listed, one.driver), *_driverless(listed), _FROM_OUTSIDE)) for one in assessments
    )


def _is_known(listed: ListedNode, driver: str) -> bool:
    if driver in listed.all_drivers() or driver in listed.unlocated or driver in listed.doubtful:
        return True
    return any(class_.provisioner == driver for class_ in listed.classes)


def _driverless(listed: ListedNode) -> Iterable[str]:
    if listed.driverless:
        yield f"PersistentVolumes on this node that belong to no CSI driver and are not judged: {listed.driverless}"


def _unlocated(listed: ListedNode, driver: str) -> Iterable[str]:
    if volumes := listed.unlocated.get(driver):
        yield f"on which node these volumes are is not known, from neither node labels nor the volumes themselves: {first_few(volumes)}"


def _as_json(judged: tuple[Assessment, ...]) -> str:
    return json.dumps([as_json(one) for one in judged], indent=2)


def _as_text(judged: tuple[Assessment, ...], question: Question) -> str:
    if not judged:
        return f"node {question.name}: no CSI driver has, or could have, volumes that only this node can reach"
    intent = Intent(question.intent) if question.intent else None
    return "\n\n".join(render(one, intent=intent) for one in judged)
