"""The judgement of one node for one driver as `explain` shows it: made from outside, beside what the node's own sidecar says."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from sidecar.commands.explain.answer import strictness
from sidecar.commands.explain.ends import End, ends
from sidecar.config.config import Config
from sidecar.drain.facts import node_marks
from sidecar.drain.facts.cluster_listing import ClusterListing
from sidecar.drain.facts.listed_node import ListedNode
from sidecar.drain.facts.node_marks import Signals
from sidecar.drain.judgement.assessment import Assessment, Verdict
from sidecar.drain.publish.from_outside import judged
from sidecar.drain.publish.own_word import OwnWord, own_word
from sidecar.drain.vocabulary import Intent, Policy, Reason, Status
from sidecar.drain.wording import first_few
from sidecar.kube.api import KubeApi
from sidecar.model import names
from sidecar.model.selectors import parse_selector

AS_IN_A_DAEMON_SET: Final = ("--node-deployment", "--drain-report")
"""Flags without which others are refused that the judgement depends on."""
_FROM_OUTSIDE: Final = (
    "not visible from outside the node: creations that only its own sidecar knows of, and volumes that its driver has without a "
    "PersistentVolume"
)


@dataclass(frozen=True, slots=True)
class Judged:
    """Both views of a node. Each may see what the other does not, so the stricter verdict counts."""

    assessment: Assessment
    """From outside, but for verdicts in which its own sidecar is stricter: these are the sidecar's."""
    word: OwnWord | None
    """None: its own sidecar says nothing."""
    signals: Signals | None
    """What stands on the Node; None: there is no such Node."""
    ends: tuple[End, ...] = ()
    """Until when what is under way goes on at the latest."""
    own: frozenset[Intent] = frozenset()
    """In which its own sidecar is the stricter."""


def listing(kube: KubeApi, config: Config, node: str = "") -> ClusterListing:
    """A look at that node, or at all, now, for the flags that are given."""
    return ClusterListing(kube, node, now=time.time(), tenants=parse_selector(config.drain_tenant_policies))


def judge(listed: ListedNode, driver: str, *, default_policy: Policy | None) -> tuple[Judged, ...]:
    """Without a driver's name: for all drivers that have something on the node, or could have."""
    if driver and not _is_known(listed, driver):
        known = ", ".join(listed.all_drivers()) or "none"
        nobody = f"driver {driver} is not known on this node; check the name: the drivers of the node are {known}"
        listed = replace(listed, ignorance=(*listed.ignorance, nobody))
    return tuple(_judged(listed, name, default_policy) for name in ((driver,) if driver else listed.all_drivers()))


def _judged(listed: ListedNode, driver: str, default_policy: Policy | None) -> Judged:
    one = judged(listed, driver, default_policy=default_policy)
    noted = replace(one, notes=(*one.notes, *_unlocated(listed, driver), *_driverless(listed), _FROM_OUTSIDE))
    report = listed.reports.get(names.drain_report(listed.node_name, driver), {})
    word = own_word(report, listed.conditions, driver=driver, node_uid=one.node_uid)
    signals = node_marks.read(listed.node, driver, now=listed.at) if listed.node else None
    stricter = _stricter(word, noted) if word else {}
    counted = replace(noted, drain=stricter.get(Intent.REBOOT, noted.drain), retire=stricter.get(Intent.RETIRE, noted.retire))
    return Judged(counted, word, signals, ends(word, one.blockers, listed.claims, listed.at), frozenset(stricter))


def _stricter(word: OwnWord, one: Assessment) -> Mapping[Intent, Verdict]:
    """Verdicts of its own sidecar that are stricter than those from outside."""
    statuses = {intent: word.status(intent, one.at) for intent in Intent}
    return {
        intent: _of_sidecar(word, intent, status, one)
        for intent, status in statuses.items()
        if strictness(status) > strictness(one.verdict(intent).status)
    }


def _of_sidecar(word: OwnWord, intent: Intent, status: Status, one: Assessment) -> Verdict:
    said, outside = word.verdict(intent), f"from outside it is {one.verdict(intent).status}"
    if word.is_stale(one.at):
        why = f"its own sidecar says {said.status}, and has not said it again in time; {outside}"
        return Verdict(status, Reason.AGENT_UNAVAILABLE, why)
    reason = Reason(said.reason) if said.reason in list(Reason) else Reason.NOT_KNOWN
    return Verdict(status, reason, f"its own sidecar says: {said.message or said.reason}; {outside}")


def _is_known(listed: ListedNode, driver: str) -> bool:
    if driver in listed.all_drivers() or any(driver in some for some in (listed.unlocated, listed.doubtful, listed.orphans)):
        return True
    return any(class_.provisioner == driver for class_ in listed.classes)


def _driverless(listed: ListedNode) -> Iterable[str]:
    if listed.driverless:
        yield f"PersistentVolumes on this node that belong to no CSI driver and are not judged: {listed.driverless}"


def _unlocated(listed: ListedNode, driver: str) -> Iterable[str]:
    if volumes := listed.unlocated.get(driver):
        yield f"on which node these volumes are is not known, from neither node labels nor the volumes themselves: {first_few(volumes)}"
