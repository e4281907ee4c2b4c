"""The judgement as a whole: the verdicts, what is told and blocks nothing, and what holds for every snapshot."""

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.facts.snapshot import InFlight, Snapshot
from sidecar.drain.judgement.assess import assess
from sidecar.drain.judgement.assessment import Assessment, HeldVolume, PodFate, Verdict
from sidecar.drain.vocabulary import Fate, Intent, Policy, Reason, Status, VolumeClass
from sidecar.model import names
from tests.harness.drain import samples, worlds
from tests.harness.drain.samples import GIB

SEEDS = st.integers(0, 2**32)
DEAF = samples.node(ready="Unknown")


def verdicts(snapshot: Snapshot) -> tuple[tuple[Status, Reason], tuple[Status, Reason]]:
    found = assess(snapshot)
    return (found.drain.status, found.drain.reason), (found.retire.status, found.retire.reason)


def test_where_nothing_is_both_are_true() -> None:
    found = assess(samples.snapshot())
    verdict = Verdict(Status.TRUE, Reason.NOTHING_HERE, "no volume of local.example.com is on this node")
    assert found == Assessment(
        node="n1",
        node_uid="uid-n1",
        driver="local.example.com",
        at=samples.NOW,
        drain=verdict,
        retire=verdict,
        blockers=(),
        volumes=(),
        pods=(),
        places=(),
        budgets=(),
        notes=(),
    )


def test_where_nothing_blocks_both_are_true_and_say_that_there_is_something() -> None:
    assert verdicts(samples.idle(claims=(samples.claim(policy="Ignore"),))) == ((Status.TRUE, Reason.NOTHING_BLOCKS),) * 2


def test_a_verdict_names_the_worst_and_counts_the_rest() -> None:
    volumes = (samples.volume(gib=1), samples.volume("pv-1", "data-1", gib=2))
    found = assess(samples.idle(volumes=volumes, claims=(samples.claim(), samples.claim("data-1"))))
    assert found.retire == Verdict(Status.FALSE, Reason.LAST_COPY, "PersistentVolumeClaim apps/data-1: LastCopy and 1 more")
    assert found.verdict(Intent.RETIRE) is found.retire and found.drain.status is Status.TRUE
    kept = assess(samples.idle(volumes=(samples.volume(phase="Released"),), claims=())).retire
    assert kept.message == "PersistentVolume pv-0: ReleasePending"


def test_what_is_not_known_is_never_true_and_what_is_known_to_block_stays_false() -> None:
    for changes, drain, retire in [
        ({"ignorance": ("claims",)}, (Status.UNKNOWN, Reason.NOT_KNOWN), (Status.FALSE, Reason.VOLUME_IN_USE)),
        ({"node": None}, (Status.UNKNOWN, Reason.NOT_KNOWN), (Status.FALSE, Reason.VOLUME_IN_USE)),
        ({"node": DEAF}, (Status.UNKNOWN, Reason.SOURCE_OFFLINE), (Status.FALSE, Reason.SOURCE_OFFLINE)),
        ({"node": samples.node(ready="False")}, (Status.TRUE, Reason.NOTHING_BLOCKS), (Status.FALSE, Reason.VOLUME_IN_USE)),
    ]:
        assert verdicts(samples.used(**changes)) == (drain, retire)
        assert [blocker.reason for blocker in assess(samples.used(**changes)).blockers] == [Reason.VOLUME_IN_USE]


def test_of_a_silent_node_the_drain_is_unknown_even_if_something_speaks_against_it() -> None:
    found = assess(samples.used(node=DEAF, claims=(samples.claim(policy="Block"),)))
    assert Reason.WOULD_STRAND in {blocker.reason for blocker in found.blockers}
    assert found.drain.status is Status.UNKNOWN


def test_what_is_being_created_blocks_both() -> None:
    flight = InFlight("uid-new", "apps", "new", "local", GIB)
    found = assess(samples.snapshot(in_flight=(flight,)))
    (blocker,) = found.blockers
    assert (blocker.reason, blocker.blocks, blocker.name, blocker.bytes) == (
        Reason.PROVISIONING_IN_FLIGHT,
        (Intent.REBOOT, Intent.RETIRE),
        "new",
        GIB,
    )
    assert found.drain.status is found.retire.status is Status.FALSE


def test_volumes_and_pods_are_told_with_what_belongs_to_them() -> None:
    found = assess(samples.used(budgets=(samples.budget(allowed=2),), claims=(samples.claim(policy="Block"),)))
    assert found.volumes == (
        HeldVolume("pv-0", "apps/data-0", VolumeClass.IN_USE, 10 * GIB, Policy.BLOCK, "PersistentVolumeClaim", ("apps/db-0",)),
    )
    (end,) = found.pods
    expected = PodFate("apps", "db-0", "uid-apps-db-0", Fate.RETURNS, Fate.STRANDED, ("pv-0",), ("apps/db",), end.why)
    assert end == expected and found.budgets == ()


def test_only_pods_with_volumes_of_ours_are_listed_and_the_others_counted() -> None:
    pods = (
        samples.pod("db-0", "data-0"),
        samples.pod("web", local=("emptyDir", "hostPath")),
        samples.pod("done", phase="Succeeded"),
        samples.pod("agent", owner=samples.owner("DaemonSet"), local=("hostPath",)),
    )
    found = assess(samples.used(pods=pods))
    assert [pod.name for pod in found.pods] == ["db-0"]
    assert found.notes == (
        "pods without a volume of local.example.com: 2",
        "volumes that belong to no driver: 1 emptyDir and 1 hostPath, in 1 pods",
    )


def test_what_blocks_nothing_is_noted() -> None:
    for snapshot, note in [
        (samples.used(budgets=None), "disruption budgets were not checked"),
        (samples.used(node=samples.node(ready="False")), "the kubelet reports that the node is not ready"),
        (samples.idle(never_used=frozenset({"pv-0"})), "never used: pv-0"),
        (samples.snapshot(untracked=tuple(f"lv-{n}" for n in range(5))), "known to the driver alone: 'lv-0', 'lv-1', 'lv-2' and 2 more"),
        (samples.snapshot(untracked=("x" * 99,)), f"known to the driver alone: '{'x' * 40}'"),
        (
            samples.snapshot(untracked_unknown="it broke"),
            "whether the driver has volumes without a PersistentVolume is not known: it broke",
        ),
        (samples.snapshot(contents=(samples.content(ack="ann"),)), "acknowledged as dispensable: snap-0"),
        (samples.idle(claims=(samples.claim(policy="Ignore"),)), "may be lost under the policy Ignore: pv-0"),
        (samples.idle(claims=(samples.claim(policy="Reprovision"),)), "whether volumes fit on other nodes was not checked"),
        (
            samples.idle(classes=(samples.class_(policy="Foo"),)),
            "StorageClass local says 'Foo', which is not a policy: Block applies: pv-0",
        ),
    ]:
        assert note in assess(snapshot).notes


def test_what_would_block_if_it_were_there_and_is_not_known_makes_the_retirement_unknown() -> None:
    for blocks in [True, False]:
        found = assess(samples.snapshot(untracked_unknown="it broke", untracked_blocks=blocks))
        assert (found.drain.status, found.retire.status) == (Status.TRUE, Status.UNKNOWN if blocks else Status.TRUE)
        assert ("it broke" in found.retire.message) is blocks


@given(SEEDS)
def test_the_order_of_what_is_known_means_nothing(seed: int) -> None:
    snapshot = worlds.drawn(Random(seed))
    assert assess(worlds.permuted(snapshot, Random(seed + 1))) == assess(snapshot)


@given(SEEDS)
def test_ignorance_never_makes_a_verdict_true_and_takes_no_blocker_away(seed: int) -> None:
    snapshot = worlds.drawn(Random(seed))
    before, after = assess(snapshot), assess(replace(snapshot, ignorance=(*snapshot.ignorance, "something else")))
    for intent in Intent:
        assert after.verdict(intent).status is not Status.TRUE
        assert after.verdict(intent).status is before.verdict(intent).status or before.verdict(intent).status is Status.TRUE
    assert after.blockers == before.blockers


@given(SEEDS)
def test_with_an_unread_policy_only_what_every_policy_would_block_blocks(seed: int) -> None:
    snapshot = worlds.drawn(Random(seed))

    def blocking(changed: Snapshot) -> set[tuple[str, Intent]]:
        return {(item.key, intent) for item in assess(changed).blockers if item.kind != "Pod" for intent in item.blocks}

    every = [
        blocking(replace(snapshot, namespace_policies={"apps": samples.notes(word)} if word else {})) for word in (None, *Policy, "Foo")
    ]
    ignorant = replace(snapshot, namespace_policies={}, unread=frozenset({"namespace apps"}), ignorance=("namespace apps: no answer",))
    assert blocking(ignorant) == set.intersection(*every)


@given(SEEDS)
def test_what_follows_from_a_verdict(seed: int) -> None:
    snapshot = worlds.drawn(Random(seed))
    found = assess(snapshot)
    known = snapshot.node is not None and snapshot.node.ready != "Unknown"
    for intent in Intent:
        blocked = any(intent in blocker.blocks for blocker in found.blockers)
        status = found.verdict(intent).status
        assert status is not Status.TRUE or (known and not blocked and not snapshot.ignorance)
        assert status is not Status.FALSE or blocked
        assert "\n" not in found.verdict(intent).message
    keys = [(blocker.key, blocker.reason) for blocker in found.blockers]
    assert len(set(keys)) == len(keys)
    assert sorted(item.name for item in found.volumes) == [item.name for item in found.volumes]


@given(SEEDS)
def test_the_time_of_the_judgement_changes_nothing_but_what_time_decides(seed: int) -> None:
    """Else reports and events would be written at every look."""
    snapshot = worlds.drawn(Random(seed))
    now, later = (assess(replace(snapshot, now=snapshot.now + passed)) for passed in (0.0, 7.0))
    assert replace(later, at=now.at) == now


# --- What is told and blocks nothing, and what has to be known before a verdict is True ---


LOST = samples.content("snap-9", managed_by="", source_handle="gone")


def test_a_snapshot_that_may_be_here_leaves_open_whether_the_node_may_be_retired() -> None:
    found = assess(samples.snapshot(unplaced_contents=(LOST,)))
    told = (
        "it is not known on which node the data of VolumeSnapshotContent snap-9 is; label it snapshot.storage.kubernetes.io/managed-by: "
        "NODE, or, if it may be lost, annotate it with csi-node-sidecar.io/ack: WHO"
    )
    assert found.drain.status is Status.TRUE
    assert (found.retire.status, found.retire.reason, found.retire.message) == (Status.UNKNOWN, Reason.NOT_KNOWN, told)
    assert found.notes == (told,)


def test_a_snapshot_that_may_be_here_and_may_be_lost_does_not() -> None:
    acknowledged = replace(LOST, notes=samples.notes(ack="ann"))
    found = assess(samples.snapshot(unplaced_contents=(acknowledged,)))
    assert found.retire.status is Status.TRUE
    assert found.notes == ("acknowledged as dispensable, wherever its data is: snap-9",)
    assert assess(samples.snapshot(unplaced_contents=(acknowledged, LOST))).retire.status is Status.UNKNOWN


def test_volumes_of_other_drivers_are_counted_and_not_judged() -> None:
    foreign = tuple(samples.volume(f"nfs-{number}", driver=driver, gib=1) for number, driver in enumerate(("nfs.example", "rbd.example")))
    found = assess(samples.snapshot(foreign=foreign))
    assert found.notes == (
        f"Foreign: pods of this node use 2 volumes of nfs.example, rbd.example, {2 * GIB} bytes, of which nothing is judged",
    )
    assert (found.retire.reason, found.volumes) == (Reason.NOTHING_HERE, ())


def test_a_volume_that_others_reach_keeps_neither_its_node_nor_its_pods() -> None:
    shared = samples.used(claims=(samples.claim(policy="Block"),), shared_with={"pv-0": ("n3", "n2")})
    found = assess(shared)
    assert (found.drain.status, found.retire.status, found.blockers) == (Status.TRUE, Status.TRUE, ())
    assert "also reached by n2, n3: pv-0" in found.notes
    assert (found.pods[0].reboot, found.pods[0].retire) == ("MovesFree", "MovesFree")
    assert assess(replace(shared, shared_with={"pv-0": ()})).retire.status is Status.FALSE


def test_what_is_only_asked_for_says_so() -> None:
    flight = InFlight("uid-new", "apps", "new", "local", GIB, begun=False)
    (blocker,) = assess(samples.snapshot(in_flight=(flight,))).blockers
    assert blocker.message == "its creation was asked for a moment ago, and is not known to have begun"
    (begun,) = assess(samples.snapshot(in_flight=(replace(flight, begun=True),))).blockers
    assert begun.message == "its PersistentVolume does not exist yet"


def test_a_released_volume_that_may_be_lost_waits_for_nobody() -> None:
    for gone in [{"policy": "Ignore"}, {"notes": samples.notes(ack="ann")}]:
        released = samples.volume(phase="Released")
        assert assess(samples.idle(volumes=(released,), claims=())).retire.reason is Reason.RELEASE_PENDING
        given_up = samples.volume(phase="Released", **gone)  # type: ignore[arg-type]
        found = assess(samples.idle(volumes=(given_up,), claims=()))
        assert found.retire.status is Status.TRUE
        assert found.notes in (("may be lost under the policy Ignore: pv-0",), ("acknowledged as dispensable: pv-0",))


def test_a_volume_under_the_nodes_former_name_keeps_it_from_being_retired() -> None:
    allowed, forbidden = (((names.DRAIN_POLICY_RETIRE, word),) for word in ("AllowIdle", "Block"))
    for volume, blocks in [
        (samples.volume(), True),
        (samples.volume(notes=forbidden), True),
        (samples.volume(phase="Released"), True),
        (samples.volume(phase="Released", notes=allowed), True),
        (samples.volume(phase="Released", reclaim_policy="Retain"), True),
        (samples.volume(notes=allowed), False),
        (samples.volume(policy="Ignore"), False),
        (samples.volume(notes=samples.notes(ack="ann")), False),
    ]:
        found = assess(samples.idle(volumes=(volume,), renamed=frozenset({"pv-0"})))
        assert [item.class_ for item in found.volumes] == [VolumeClass.RENAMED]
        assert found.drain.status is Status.TRUE
        assert [item.reason for item in found.blockers] == ([Reason.NODE_RENAMED] if blocks else [])
