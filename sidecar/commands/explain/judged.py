"""The judgement of one node for one driver as `explain` shows it: made from outside, beside what the node's own sidecar says."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from sidecar.commands.explain.ends import End, ends
from sidecar.config.config import Config
from sidecar.drain.facts import node_marks
from sidecar.drain.facts.cluster_listing import ClusterListing
from sidecar.drain.facts.listed_node import ListedNode
from sidecar.drain.facts.node_marks import Signals
from sidecar.drain.judgement.assessment import Assessment
from sidecar.drain.publish.from_outside import judged
from sidecar.drain.publish.own_word import OwnWord, own_word
from sidecar.drain.vocabulary import Intent, Policy, Status
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
    """Both views of a node."""

    assessment: Assessment
    word: OwnWord | None
    """None: its own sidecar says nothing."""
    signals: Signals | None
    """What stands on the Node; None: there is no such Node."""
    ends: tuple[End, ...] = ()
    """Until when what is under way goes on at the latest."""

    def statuses(self, intent: Intent) -> tuple[Status, ...]:
        """All that is said of it: the stricter counts, because each of the two views may see what the other does not."""
        own = (self.word.status(intent, self.assessment.at),) if self.word else ()
        return self.assessment.verdict(intent).status, *own


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
    return Judged(noted, word, signals, ends(word, one.blockers, listed.claims, listed.at))


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
