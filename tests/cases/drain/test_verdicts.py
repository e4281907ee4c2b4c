"""Acceptance cases of drains that a judgement alone decides: verdicts, what becomes of pods, and what is said about blockers."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from sidecar.drain.assess import Assessment, assess
from sidecar.drain.blockers import Blocker
from sidecar.drain.snapshot import InFlight, Snapshot
from sidecar.drain.words import Fate, Intent, Reason, Status, VolumeClass
from sidecar.model import names
from tests.harness.drain import samples

TRUE, FALSE, UNKNOWN = Status.TRUE, Status.FALSE, Status.UNKNOWN


def reasons(found: Assessment, intent: Intent) -> set[Reason]:
    return {blocker.reason for blocker in found.blockers if intent in blocker.blocks}


# --- D: verdicts ------------------------------------------------------------------------------------------------------


def test_drain_D1_an_idle_claim_blocks_retiring_and_no_reboot() -> None:
    found = assess(samples.idle(node=samples.node(unschedulable=True)))
    assert found.drain.status is TRUE
    assert (found.retire.status, found.retire.reason) == (FALSE, Reason.LAST_COPY)
    assert "apps/data-0" in found.retire.message


def test_drain_D2_a_stateful_sets_pod_returns_after_a_reboot_and_is_stranded_by_retiring() -> None:
    found = assess(samples.used(claims=(samples.claim(policy="AllowIdle"),)))
    assert [(fate.pod.name, fate.reboot, fate.retire) for fate in found.pods] == [("db-0", Fate.RETURNS, Fate.STRANDED)]
    assert (found.drain.status, found.retire.status) == (TRUE, FALSE)
    lost = assess(samples.used(claims=(samples.claim(policy="Ignore"),)))
    assert [(fate.reboot, fate.retire) for fate in lost.pods] == [(Fate.RETURNS, Fate.LOST)]


def test_drain_D8_ephemeral_volumes_never_block() -> None:
    owned = samples.claim(owner=replace(samples.owner("Pod", "db-0"), uid="uid-apps-db-0"), policy="Block")
    pod = samples.pod("db-0", "data-0", ephemeral=("data-0",), inline=(samples.DRIVER,), owner=samples.owner("ReplicaSet", "web"))
    found = assess(samples.used(claims=(owned,), pods=(pod,)))
    assert [thing.class_ for thing in found.things] == [VolumeClass.EPHEMERAL] * 2
    assert (found.drain.status, found.retire.status, found.blockers) == (TRUE, TRUE, ())
    assert [(fate.reboot, fate.retire) for fate in found.pods] == [(Fate.MOVES_FREE, Fate.MOVES_FREE)]


def test_drain_D10_released_volumes_block_retiring_until_both_are_deleted() -> None:
    released = tuple(samples.volume(f"pv-{number}", f"data-{number}", phase="Released") for number in range(2))
    for left in (released, released[:1]):
        found = assess(samples.snapshot(volumes=left))
        assert (found.drain.status, found.retire.status, found.retire.reason) == (TRUE, FALSE, Reason.RELEASE_PENDING)
    assert assess(samples.snapshot()).retire.status is TRUE


USED_BY = samples.pod("db-0", "data-0")
BY_REASON: dict[Reason, Callable[[], Snapshot]] = {
    Reason.LAST_COPY: samples.idle,
    Reason.VOLUME_IN_USE: samples.used,
    Reason.WOULD_STRAND: lambda: samples.used(claims=(samples.claim(policy="Block"),)),
    Reason.REPROVISION_PENDING: lambda: samples.used(claims=(samples.claim(policy="Reprovision"),)),
    Reason.SNAPSHOT_ON_NODE: lambda: samples.snapshot(contents=(samples.content(),)),
    Reason.RELEASE_PENDING: lambda: samples.idle(volumes=(samples.volume(phase="Released"),)),
    Reason.PROVISIONING_IN_FLIGHT: lambda: samples.snapshot(in_flight=(InFlight(samples.claim("new")),)),
    Reason.RECLAIM_RETAIN: lambda: samples.idle(volumes=(samples.volume(phase="Released", reclaim_policy="Retain"),)),
    Reason.POD_TERMINATING: lambda: samples.used(pods=(replace(USED_BY, deleting_since=samples.stamp(301)),)),
    Reason.BARE_POD: lambda: samples.used(pods=(replace(USED_BY, owner=None),)),
    Reason.POLICY_CONFLICT: lambda: samples.used(claims=(samples.claim(policy="Foo"),)),
}
WITHOUT_POLICY = {Reason.SNAPSHOT_ON_NODE, Reason.PROVISIONING_IN_FLIGHT}


def _of(reason: Reason) -> Blocker:
    (one,) = (blocker for blocker in assess(BY_REASON[reason]()).blockers if blocker.reason is reason)
    return one


@pytest.mark.parametrize("reason", BY_REASON, ids=str)
def test_drain_D11_a_blocker_says_all_that_is_needed(reason: Reason) -> None:
    blocker = _of(reason)
    assert blocker.object.kind in (names.CLAIM, names.VOLUME, names.POD, names.SNAPSHOT_CONTENT)
    assert blocker.object.name and blocker.object.uid
    assert bool(blocker.object.namespace) == (blocker.object.kind in (names.CLAIM, names.POD))
    assert blocker.blocks and blocker.message and blocker.class_ and reason.says
    assert blocker.remedy and "\n" not in blocker.remedy + blocker.message
    assert (blocker.policy is None) == (reason in WITHOUT_POLICY) == (not blocker.policy_source)


# --- A, G: silent nodes, snapshots, another machine -------------------------------------------------------------------


def test_drain_A11_of_a_silent_node_it_is_known_that_data_is_there_and_nothing_else() -> None:
    silent = samples.node(ready="Unknown", taints=(samples.taint(names.EVACUATE_TAINT, "retire"),))
    found = assess(samples.used(node=silent))
    assert (found.drain.status, found.drain.reason) == (UNKNOWN, Reason.SOURCE_OFFLINE)
    assert (found.retire.status, found.retire.reason) == (FALSE, Reason.SOURCE_OFFLINE)
    assert assess(samples.used()).retire.reason is Reason.VOLUME_IN_USE


def test_drain_A14_idle_volumes_and_snapshots_block_until_gone_or_acknowledged() -> None:
    both = samples.idle(contents=(samples.content(),))
    assert reasons(assess(both), Intent.RETIRE) == {Reason.LAST_COPY, Reason.SNAPSHOT_ON_NODE}
    acknowledged = replace(both, contents=(samples.content(ack="ticket 12"),))
    assert reasons(assess(acknowledged), Intent.RETIRE) == {Reason.LAST_COPY}
    both_acknowledged = replace(acknowledged, volumes=(samples.volume(notes=samples.notes(ack="ticket 13")),))
    assert assess(both_acknowledged).retire.status is TRUE
    gone = replace(acknowledged, volumes=(), claims={})
    assert assess(gone).retire.status is TRUE and assess(both).drain.status is TRUE
