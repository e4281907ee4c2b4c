"""What is worth knowing and blocks nothing: volumes that may go, words that do not count, what was not checked."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.judgement.acknowledged import is_acknowledged
from sidecar.drain.judgement.groups import may_go
from sidecar.drain.judgement.volumes import ACKNOWLEDGED, LocalItem, may_be_lost
from sidecar.drain.machine_mark import Machine, text
from sidecar.drain.vocabulary import Policy, VolumeClass
from sidecar.drain.wording import first_few, quoted
from sidecar.model import names
from sidecar.model.objects import Volume

_DISPENSABLE: Final = (VolumeClass.IN_USE, VolumeClass.IDLE, VolumeClass.RETAINED, VolumeClass.RELEASING, VolumeClass.RENAMED)

_SPENT: Final = (
    "the volume was used when it was written, or since, or may have been used while the sidecar was away; to renew it, change its text "
    "(WHO, DATE) while no pod uses the volume"
)
NOT_LISTED: Final = "whether the driver has volumes without a PersistentVolume is not known: "


def about_volumes(held: Sequence[LocalItem]) -> Iterable[str]:
    """One line for what several have in common: a policy in a StorageClass concerns all its volumes."""
    lines: dict[str, list[str]] = defaultdict(list)
    for item in held:
        for line in dict.fromkeys(_about(item)):
            lines[line].append(quoted(item.name) if item.class_ is VolumeClass.UNTRACKED else item.name)
    return (f"{line}: {first_few(volumes)}" for line, volumes in lines.items())


def about_the_rest(snapshot: Snapshot, held: Sequence[LocalItem]) -> Iterable[str]:
    """What is not among the volumes of this driver on this node, and what was not looked at."""
    acknowledged = sorted(content.name for content in snapshot.unplaced_contents if is_acknowledged(content.notes))
    if acknowledged:
        yield f"{ACKNOWLEDGED}, wherever its data is: {first_few(acknowledged)}"
    yield from where_is(snapshot)
    if snapshot.foreign:
        yield _about_foreign(snapshot.foreign)
    yield from _noted_otherwise(snapshot)
    if snapshot.untracked_unknown:
        yield NOT_LISTED + snapshot.untracked_unknown
    if snapshot.surroundings is None and any(may_go(item) for item in held):
        yield "whether volumes fit on other nodes was not checked"


def where_is(snapshot: Snapshot) -> tuple[str, ...]:
    """Snapshots and volumes that may be here: what has to be known before anybody may say that nothing is lost."""
    return *_where_volumes_are(snapshot), *_where_snapshots_are(snapshot)


def _where_volumes_are(snapshot: Snapshot) -> Iterable[str]:
    missed = [volume for volume, claim in snapshot.unplaced if not may_be_lost(volume, claim, snapshot)]
    loose, several = ([each for each in missed if (each.affinity is None) is loose] for loose in (True, False))
    for why, remedy, some in (
        ("which have no node affinity", "give them the affinity of their node", loose),
        ("whose node affinity several nodes match", "make them anew with that of their node alone", several),
    ):
        if some:
            found = first_few(sorted(volume.name for volume in some))
            yield (
                f"it is not known on which node these PersistentVolumes are, {why} and which do not say who made them: {found}; {remedy}, "
                f"or, if they may be lost, annotate them with {names.DRAIN_POLICY}: {Policy.IGNORE}"
            )


def _noted_otherwise(snapshot: Snapshot) -> Iterable[str]:
    """Such a note stays where the driver does not say that the volume is here: then nobody clears up after this machine."""
    node = snapshot.node
    mine = text(Machine(node.name, node.uid)) if node is not None else ""
    found = sorted(volume.name for volume in snapshot.volumes if volume.lies_on and volume.lies_on != mine)
    if found:
        yield f"{names.LIES_ON} names another machine; if that is wrong, remove the annotation: {first_few(found)}"


def _where_snapshots_are(snapshot: Snapshot) -> tuple[str, ...]:
    unknown = sorted(content.name for content in snapshot.unplaced_contents if not is_acknowledged(content.notes))
    if not unknown:
        return ()
    remedy = f"label it {names.CONTENT_MANAGED_BY}: NODE, or, if it may be lost, annotate it with {names.ACKNOWLEDGED}: WHO"
    return (f"it is not known on which node the data of VolumeSnapshotContent {first_few(unknown)} is; {remedy}",)


def _about(item: LocalItem) -> Iterable[str]:
    if item.excuse:
        yield item.excuse
    if item.acknowledged and item.acknowledged.given.void:
        yield f"the annotation {names.ACKNOWLEDGED} is void, because {_SPENT}"
    for resolved in filter(None, (item.reboot, item.retire)):
        yield from filter(None, (resolved.problem, resolved.unheeded))
    retire = item.retire
    if retire and retire.certain and retire.policy is Policy.IGNORE and item.class_ in _DISPENSABLE:
        yield "may be lost under the policy Ignore"


def _about_foreign(volumes: Sequence[Volume]) -> str:
    drivers, size = sorted({volume.driver for volume in volumes}), sum(volume.size for volume in volumes)
    count = f"{len(volumes)} volume{'' if len(volumes) == 1 else 's'}"
    return f"{VolumeClass.FOREIGN}: pods of this node use {count} of {first_few(drivers)}, {size} bytes, of which nothing is judged"
