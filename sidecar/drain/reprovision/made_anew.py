"""What a StatefulSet asks for in place of a claim that is deleted. Templates are not what they were when the claim was made.

People delete a StatefulSet without its pods and make it again to change its templates, and the default class is another one by now.
"""

from collections.abc import Iterable
from dataclasses import replace

from sidecar.drain.judgement.volumes import LocalItem
from sidecar.drain.reprovision.facts import Facts
from sidecar.drain.reprovision.record import Target
from sidecar.model.objects import Claim


def no_volume(target: Target, facts: Facts) -> str:
    """Why none is made for one of its new claims; empty: nothing is known to be in the way."""
    for claim in target.claims:
        wish = _wish(claim.name, target, facts)
        if wish is None:
            continue
        template = f"the template of claim {claim.name} in StatefulSet {target.workload}"
        if wish.has_selector or wish.volume_name:
            return f"{template} asks for a volume that is there, so none is made"
        name = _class_of(wish, facts)
        if not name:
            return f"{template} names no StorageClass, and none is the default"
        if name not in facts.classes:
            return f"StorageClass {name}, which {template} names, does not exist"
    return ""


def as_made(held: Iterable[LocalItem], target: Target, facts: Facts, *, driver: str) -> tuple[LocalItem, ...]:
    """These volumes of its claims as they will be made: of the class of the template, and no smaller than now. What another driver makes is
    for that driver to place."""
    found = ((item, _wish(item.object.name, target, facts)) for item in held)
    made = (item if wish is None else _made(item, wish, facts, driver) for item, wish in found)
    return tuple(item for item in made if item is not None)


def _made(item: LocalItem, wish: Claim, facts: Facts, driver: str) -> LocalItem | None:
    class_ = facts.classes.get(_class_of(wish, facts))
    if class_ is not None and class_.provisioner != driver:
        return None
    return replace(item, storage_class=class_.name if class_ else item.storage_class, bytes=max(item.bytes, wish.requested or 0))


def _class_of(wish: Claim, facts: Facts) -> str:
    return wish.class_name or facts.default_class


def _wish(claim: str, target: Target, facts: Facts) -> Claim | None:
    """None: it has no template."""
    wishes = facts.workload.wishes if facts.workload else ()
    return next((wish for wish in wishes if f"{wish.name}-{target.pod}" == claim), None)
