"""The snapshot of a node that was listed from outside, with what its own sidecar has stored about it: which
acknowledgements are void, and whether it makes replicas anew."""

from collections.abc import Iterable
from dataclasses import replace

from sidecar.drain.facts.assembly import assemble
from sidecar.drain.facts.listed_node import ListedNode
from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.judgement.acknowledged import FORGOTTEN, NOT_REMEMBERED, is_acknowledged
from sidecar.drain.judgement.assess import assess
from sidecar.drain.judgement.assessment import Assessment
from sidecar.drain.publish import stored
from sidecar.drain.publish.stored import of_this_node
from sidecar.drain.vocabulary import Policy
from sidecar.model import names
from sidecar.model.objects import Json, Volume


def snapshot_of(listed: ListedNode, driver: str, *, default_policy: Policy | None, reported: bool = False) -> Snapshot:
    """Of one driver on that node. `reported`: the node's own sidecar should have left a report, which remembers."""
    facts, uid = listed.facts_of(driver), listed.node.uid if listed.node else ""
    name = names.drain_report(listed.node_name, driver)
    report = {"status": listed.reports.get(name, {})}
    assembled = assemble(facts, now=listed.at, default_policy=default_policy)
    return replace(
        assembled,
        ignorance=(*assembled.ignorance, *_forgotten(name in listed.unread_reports, facts.volumes)),
        not_remembered=_not_remembered(of_this_node(report["status"], uid), facts.volumes, reported=reported),
        void_acknowledgements=stored.void_acknowledgements(report, facts.volumes, node_uid=uid, now=listed.at),
        reprovisions=stored.makes_anew(report, node_uid=uid),
    )


def judged(listed: ListedNode, driver: str, *, default_policy: Policy | None) -> Assessment:
    """Where volumes could go is looked at only if some are to go: it is most of the work."""
    snapshot = snapshot_of(listed, driver, default_policy=default_policy)
    assessment = assess(replace(snapshot, surroundings=None))
    return assess(snapshot) if assessment.asks_for_places else assessment


def _not_remembered(status: Json, volumes: Iterable[Volume], *, reported: bool) -> str:
    """Where no sidecar reports, nobody has promised to remember."""
    lost = (status or reported) and not stored.has_memory(status)
    return NOT_REMEMBERED if lost and any(is_acknowledged(volume.notes) for volume in volumes) else ""


def _forgotten(unread: bool, volumes: Iterable[Volume]) -> tuple[str, ...]:
    """Without its memory no acknowledgement may be believed."""
    return (FORGOTTEN,) if unread and any(is_acknowledged(volume.notes) for volume in volumes) else ()
