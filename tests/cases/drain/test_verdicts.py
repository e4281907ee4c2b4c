"""Acceptance cases of drains that a judgement alone decides: verdicts, places, what becomes of pods, and what is said about blockers."""

from collections.abc import Callable
from dataclasses import replace

from sidecar.drain.facts.snapshot import InFlight, Snapshot, Surroundings
from sidecar.drain.judgement.assess import assess
from sidecar.drain.judgement.assessment import Assessment, Blocker, ExhaustedBudget
from sidecar.drain.vocabulary import Fate, Intent, Policy, Reason, Status, VolumeClass
from sidecar.model import names
from tests.harness.drain import samples
from tests.harness.drain.samples import GIB, KEY

FREE = Surroundings(tuple(samples.node(name) for name in ("n2", "n3")), tuple(samples.record(name) for name in ("n2", "n3")))


def reasons(found: Assessment, intent: Intent) -> set[Reason]:
    return {blocker.reason for blocker in found.blockers if intent in blocker.blocks}


def movable(gib: float, *, number: int = 0, **changes: str) -> Snapshot:
    volume = samples.volume(f"pv-{number}", f"data-{number}", gib=gib, policy="Reprovision", **changes)
    return samples.snapshot(volumes=(volume,))


# --- D: verdicts and capacity ------------------------------------------------------------------------------------------


def test_drain_D1_an_idle_claim_blocks_retiring_and_no_reboot() -> None:
    found = assess(samples.idle(node=samples.node(unschedulable=True)))
    assert found.drain.status is Status.TRUE
    assert (found.retire.status, found.retire.reason) == (Status.FALSE, Reason.LAST_COPY)
    assert "apps/data-0" in found.retire.message


def test_drain_D2_a_stateful_sets_pod_returns_after_a_reboot_and_is_stranded_by_retiring() -> None:
    found = assess(samples.used(claims=(samples.claim(policy="AllowIdle"),)))
    assert [(pod.name, pod.reboot, pod.retire) for pod in found.pods] == [("db-0", Fate.RETURNS, Fate.STRANDED)]
    assert (found.drain.status, found.retire.status) == (Status.TRUE, Status.FALSE)
    lost = assess(samples.used(claims=(samples.claim(policy="Ignore"),)))
    assert [(pod.reboot, pod.retire) for pod in lost.pods] == [(Fate.RETURNS, Fate.LOST)]


def test_drain_D3_a_budget_that_falls_to_nothing_is_named() -> None:
    found = assess(samples.used(budgets=(samples.budget(allowed=1), samples.budget("web", labels={"app": "web"}))))
    assert found.budgets == (ExhaustedBudget("apps/db", 1, 1, ("apps/db-0",)),)
    assert assess(samples.used(budgets=(samples.budget(allowed=2),))).budgets == ()


def test_drain_D5_two_classes_on_one_pool_are_not_counted_twice() -> None:
    for pools, placed in [((None, None), 1), (("vg0", "vg0"), 1), (("vg0", "vg1"), 2)]:
        classes = ("fast", "slow")
        records = tuple(samples.record("n2", 50, of=of, pool=pool) for of, pool in zip(classes, pools, strict=True))
        volumes = tuple(
            samples.volume(f"pv-{of}", f"data-{of}", gib=40, policy="Reprovision", class_name=of, reclaim_policy="Retain") for of in classes
        )
        found = assess(
            samples.snapshot(
                volumes=volumes, classes=[samples.class_(of) for of in classes], surroundings=Surroundings((samples.node("n2"),), records)
            )
        )
        assert sum(place.node == "n2" for place in found.places) == placed
        assert sum(place.shortfall for place in found.places) == (30 * GIB if placed == 1 else 0)


def test_drain_D6_nodes_that_do_not_come_into_question_are_named_with_the_reason() -> None:
    nodes = (
        samples.node("n2", unschedulable=True),
        samples.node("n3", ready="False"),
        samples.node("n4"),
        samples.node("n5", taints=(samples.taint("dedicated", "gpu"),)),
        samples.node("n6"),
    )
    records = (*(samples.record(node.name) for node in nodes[:-1]), samples.record("n6", maximum=GIB))
    allowed = samples.class_(allowed=({KEY: ("n1", "n2", "n3", "n5", "n6")},))
    found = assess(samples.used(claims=(samples.claim(policy="Migrate"),), classes=[allowed], surroundings=Surroundings(nodes, records)))
    (place,) = found.places
    said = dict(place.excluded)
    expected = {"n2": "cordoned", "n3": "not ready", "n4": "allowedTopologies", "n5": "dedicated=gpu", "n6": "maximumVolumeSize"}
    assert place.node == "" and said.keys() == expected.keys()
    assert all(expected[node] in why for node, why in said.items())
    assert reasons(found, Intent.RETIRE) == {Reason.NO_NODE_FITS}


def test_drain_D7_the_volumes_of_a_pod_stay_together() -> None:
    around = Surroundings(FREE.nodes, (samples.record("n2", 40), samples.record("n3", 70)))
    names_ = ("data-0", "log-0")
    volumes = tuple(samples.volume(f"pv-{name}", name, gib=30, policy="Reprovision") for name in names_)
    together = assess(samples.snapshot(volumes=volumes, pods=(samples.pod("db-0", *names_),), surroundings=around))
    assert [(place.volumes, place.node) for place in together.places] == [(("pv-data-0", "pv-log-0"), "n3")]
    tight = Surroundings(FREE.nodes, (samples.record("n2", 40), samples.record("n3", 55)))
    crowded = assess(samples.snapshot(volumes=volumes, pods=(samples.pod("db-0", *names_),), surroundings=tight))
    assert [(place.node, place.shortfall) for place in crowded.places] == [("", 5 * GIB)]
    assert reasons(crowded, Intent.RETIRE) == {Reason.NO_CAPACITY}
    assert [place.node for place in assess(samples.snapshot(volumes=volumes, surroundings=tight)).places] == ["n2", "n3"]


def test_drain_D8_ephemeral_volumes_never_block() -> None:
    owned = samples.claim(owner=replace(samples.owner("Pod", "db-0"), uid="uid-apps-db-0"), policy="Block")
    pod = samples.pod("db-0", "data-0", ephemeral=("data-0",), inline=(samples.DRIVER,), owner=samples.owner("ReplicaSet", "web"))
    found = assess(samples.used(claims=(owned,), pods=(pod,)))
    assert [volume.class_ for volume in found.volumes] == [VolumeClass.EPHEMERAL] * 2
    assert (found.drain.status, found.retire.status, found.blockers) == (Status.TRUE, Status.TRUE, ())
    assert [(pod.reboot, pod.retire) for pod in found.pods] == [(Fate.MOVES_FREE, Fate.MOVES_FREE)]


def test_drain_D10_released_volumes_block_retiring_until_both_are_deleted() -> None:
    released = tuple(samples.volume(f"pv-{number}", f"data-{number}", phase="Released") for number in range(2))
    for left in (released, released[:1]):
        found = assess(samples.snapshot(volumes=left))
        assert (found.drain.status, found.retire.status, found.retire.reason) == (Status.TRUE, Status.FALSE, Reason.RELEASE_PENDING)
    assert assess(samples.snapshot()).retire.status is Status.TRUE


USED_BY_ALL = samples.pod("db-0", "data-0")
FLIGHT = InFlight("uid-new", "apps", "new", "local", GIB)
BY_REASON: dict[Reason, Callable[[], Snapshot]] = {
    Reason.LAST_COPY: samples.idle,
    Reason.VOLUME_IN_USE: samples.used,
    Reason.WOULD_STRAND: lambda: samples.used(claims=(samples.claim(policy="Block"),)),
    Reason.NOT_AVAILABLE_YET: lambda: samples.used(claims=(samples.claim(policy="Migrate"),)),
    Reason.REPROVISION_PENDING: lambda: samples.used(claims=(samples.claim(policy="Reprovision"),), surroundings=FREE, reprovisions=True),
    Reason.NO_CAPACITY: lambda: samples.used(gib=500, claims=(samples.claim(policy="Migrate"),), surroundings=FREE),
    Reason.NO_NODE_FITS: lambda: samples.used(claims=(samples.claim(policy="Migrate"),), surroundings=Surroundings()),
    Reason.NODE_RENAMED: lambda: samples.idle(renamed=frozenset({"pv-0"})),
    Reason.SNAPSHOT_ON_NODE: lambda: samples.snapshot(contents=(samples.content(),)),
    Reason.RELEASE_PENDING: lambda: samples.idle(volumes=(samples.volume(phase="Released"),)),
    Reason.PROVISIONING_IN_FLIGHT: lambda: samples.snapshot(in_flight=(FLIGHT,)),
    Reason.RECLAIM_RETAIN: lambda: samples.idle(volumes=(samples.volume(phase="Released", reclaim_policy="Retain"),)),
    Reason.UNTRACKED_DATA: lambda: samples.snapshot(untracked=("lv-7",), untracked_blocks=True),
    Reason.PDB_BLOCKED: lambda: samples.used(budgets=(samples.budget(allowed=0),)),
    Reason.TWO_BUDGETS: lambda: samples.used(budgets=(samples.budget("a"), samples.budget("b"))),
    Reason.POD_TERMINATING_TOO_LONG: lambda: samples.used(pods=(replace(USED_BY_ALL, deleting_since=samples.stamp(301)),)),
    Reason.BARE_POD: lambda: samples.used(pods=(replace(USED_BY_ALL, owner=None),)),
    Reason.POLICY_CONFLICT: lambda: samples.used(claims=(samples.claim(policy="Foo"),)),
}
OF_NODES = {
    Reason.SOURCE_OFFLINE,
    Reason.WAITING_FOR_SLOT,
    Reason.DEADLINE_EXCEEDED,
    Reason.NOT_KNOWN,
    Reason.AGENT_UNAVAILABLE,
}
OF_TRUE = {Reason.NOTHING_HERE, Reason.NOTHING_BLOCKS}
WITHOUT_POLICY = {Reason.SNAPSHOT_ON_NODE, Reason.PROVISIONING_IN_FLIGHT, Reason.UNTRACKED_DATA}


def test_drain_D11_every_reason_is_a_blocker_or_the_nodes() -> None:
    assert BY_REASON.keys() | OF_NODES | OF_TRUE == set(Reason)


def test_drain_D11_a_blocker_says_all_that_is_needed() -> None:
    for reason in BY_REASON:
        blocker = _of(reason, BY_REASON[reason]())
        assert blocker.kind in ("PersistentVolumeClaim", "PersistentVolume", "Pod", "VolumeSnapshotContent", "Volume")
        assert blocker.name and (blocker.uid or blocker.kind == "Volume")
        assert bool(blocker.namespace) == (blocker.kind in ("PersistentVolumeClaim", "Pod"))
        assert blocker.blocks and blocker.message and blocker.class_
        assert blocker.remedy and "\n" not in blocker.remedy + blocker.message
        assert (blocker.policy is None) == (reason in WITHOUT_POLICY) == (not blocker.policy_source)


def test_drain_D11_the_policy_and_where_it_came_from() -> None:
    for snapshot, policy, source in [
        (samples.idle(volumes=(samples.volume(policy="Block"),)), Policy.BLOCK, "PersistentVolume"),
        (samples.idle(claims=(samples.claim(policy="Migrate"),)), Policy.MIGRATE, "PersistentVolumeClaim"),
        (samples.idle(classes=[samples.class_(policy="Block")]), Policy.BLOCK, "StorageClass local"),
        (samples.idle(namespace_policies={"apps": samples.notes("Block")}), Policy.BLOCK, "Namespace apps"),
        (samples.idle(default_policy=Policy.BLOCK), Policy.BLOCK, "driver"),
        (samples.idle(), Policy.BLOCK, "default"),
    ]:
        (blocker,) = assess(snapshot).blockers
        assert (blocker.policy, blocker.policy_source) == (policy, source)


def _of(reason: Reason, snapshot: Snapshot) -> Blocker:
    (one,) = (blocker for blocker in assess(snapshot).blockers if blocker.reason is reason)
    return one


# --- A, B: taints, silent nodes, snapshots -----------------------------------------------------------------------------


def test_drain_A9_a_node_whose_taint_is_gone_takes_volumes_again_and_the_other_does_not() -> None:
    evacuated = samples.taint(names.EVACUATE_TAINT, "retire")
    n1, n2 = samples.node("n1"), samples.node("n2")
    records = (samples.record("n1"), samples.record("n2"))
    movable_on_n3 = replace(movable(10), node_name="n3", node=samples.node("n3"))

    def place(*nodes: object) -> tuple[str, set[str]]:
        (found,) = assess(replace(movable_on_n3, surroundings=Surroundings(nodes, records))).places  # type: ignore[arg-type]
        return found.node, {name for name, _ in found.excluded}

    tainted = [replace(node, taints=(evacuated,)) for node in (n1, n2)]
    assert place(*tainted) == ("", {"n1", "n2"})
    assert place(n1, tainted[1]) == ("n1", set())


def test_drain_A11_of_a_silent_node_it_is_known_that_data_is_there_and_nothing_else() -> None:
    silent = samples.node(ready="Unknown", taints=(samples.taint(names.EVACUATE_TAINT, "retire"),))
    found = assess(samples.used(node=silent))
    assert (found.drain.status, found.drain.reason) == (Status.UNKNOWN, Reason.SOURCE_OFFLINE)
    assert (found.retire.status, found.retire.reason) == (Status.FALSE, Reason.SOURCE_OFFLINE)
    assert assess(samples.used()).retire.reason is Reason.VOLUME_IN_USE


def test_drain_A14_idle_volumes_and_snapshots_block_until_gone_or_acknowledged() -> None:
    both = samples.idle(contents=(samples.content(),))
    assert reasons(assess(both), Intent.RETIRE) == {Reason.LAST_COPY, Reason.SNAPSHOT_ON_NODE}
    acknowledged = replace(both, contents=(samples.content(ack="ticket 12"),))
    assert reasons(assess(acknowledged), Intent.RETIRE) == {Reason.LAST_COPY}
    both_acknowledged = replace(acknowledged, volumes=(samples.volume(notes=samples.notes(ack="ticket 13")),))
    assert assess(both_acknowledged).retire.status is Status.TRUE
    gone = replace(acknowledged, volumes=(), claims={})
    assert assess(gone).retire.status is Status.TRUE and assess(both).drain.status is Status.TRUE


def test_drain_B9_a_pod_of_a_silent_node_is_given_up_after_a_while() -> None:
    for ago, class_, listed in [(301, VolumeClass.IDLE, []), (299, VolumeClass.IN_USE, ["db-0"])]:
        pod = replace(USED_BY_ALL, deleting_since=samples.stamp(ago))
        found = assess(samples.used(node=samples.node(ready="Unknown"), pods=(pod,), skip_terminating_after=300.0))
        assert [volume.class_ for volume in found.volumes] == [class_]
        assert [pod.name for pod in found.pods] == listed


# --- E, G: what was never used, two budgets, another machine, speed -------------------------------------------------------------


def test_drain_E6_a_volume_that_was_never_used_does_not_block() -> None:
    found = assess(samples.idle(never_used=frozenset({"pv-0"})))
    assert found.retire.status is Status.TRUE and "never used: pv-0" in found.notes


def test_drain_E8_a_pod_under_two_budgets_is_a_blocker_with_both_names() -> None:
    blocker = _of(Reason.TWO_BUDGETS, samples.used(budgets=(samples.budget("b", 5), samples.budget("a", 5))))
    assert (blocker.kind, blocker.name, blocker.message) == ("Pod", "db-0", "selected by apps/a and apps/b")
    assert [pod.budgets for pod in assess(samples.used(budgets=(samples.budget("b"), samples.budget("a")))).pods] == [("apps/a", "apps/b")]
