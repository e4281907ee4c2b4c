"""What is told and blocks nothing, and what has to be known before a verdict is True."""

from dataclasses import replace

from sidecar.drain.facts.snapshot import InFlight
from sidecar.drain.judgement.assess import assess
from sidecar.drain.vocabulary import Reason, Status, VolumeClass
from sidecar.model import names
from tests.harness.drain import samples
from tests.harness.drain.samples import GIB

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


ALLOWED, FORBIDDEN = (((names.DRAIN_POLICY_RETIRE, word),) for word in ("AllowIdle", "Block"))


def test_a_volume_under_the_nodes_former_name_keeps_it_from_being_retired() -> None:
    for volume, blocks in [
        (samples.volume(), True),
        (samples.volume(notes=FORBIDDEN), True),
        (samples.volume(phase="Released"), True),
        (samples.volume(phase="Released", notes=ALLOWED), True),
        (samples.volume(phase="Released", reclaim_policy="Retain", notes=ALLOWED), True),
        (samples.volume(notes=ALLOWED), False),
        (samples.volume(phase="Released", reclaim_policy="Retain"), True),
        (samples.volume(policy="Ignore"), False),
        (samples.volume(notes=samples.notes(ack="ann")), False),
    ]:
        found = assess(samples.idle(volumes=(volume,), renamed=frozenset({"pv-0"})))
        assert [item.class_ for item in found.volumes] == [VolumeClass.RENAMED]
        assert found.drain.status is Status.TRUE
        assert [(item.reason, item.message.partition("; ")[2]) for item in found.blockers] == (
            [(Reason.NODE_RENAMED, "its PersistentVolume names another node, and the driver lists it here")] if blocks else []
        )


def test_what_is_only_asked_for_says_so() -> None:
    flight = InFlight("uid-new", "apps", "new", "local", GIB, begun=False)
    (blocker,) = assess(samples.snapshot(in_flight=(flight,))).blockers
    assert blocker.message == "its creation was asked for a moment ago, and is not known to have begun"
    (begun,) = assess(samples.snapshot(in_flight=(replace(flight, begun=True),))).blockers
    assert begun.message == "its PersistentVolume does not exist yet"


def test_whose_word_is_not_heeded_is_told() -> None:
    for snapshot, source in [
        (samples.idle(claims=(samples.claim(policy="Block"),)), "PersistentVolumeClaim"),
        (samples.idle(namespace_policies={"apps": samples.notes("Block")}), "Namespace apps"),
    ]:
        found = assess(replace(snapshot, unheeded_namespaces=frozenset({"apps"})))
        assert f"{source} says 'Block', which is not heeded in namespace apps (--drain-tenant-policies): pv-0" in found.notes
        assert not any("not heeded" in note for note in assess(snapshot).notes)


def test_a_released_volume_that_may_be_lost_waits_for_nobody() -> None:
    for gone in [{"policy": "Ignore"}, {"notes": samples.notes(ack="ann")}]:
        released = samples.volume(phase="Released")
        assert assess(samples.idle(volumes=(released,), claims=())).retire.reason is Reason.RELEASE_PENDING
        given_up = samples.volume(phase="Released", **gone)  # type: ignore[arg-type]
        found = assess(samples.idle(volumes=(given_up,), claims=()))
        assert found.retire.status is Status.TRUE
        assert found.notes in (("may be lost under the policy Ignore: pv-0",), ("acknowledged as dispensable: pv-0",))


def test_a_volume_on_which_another_machine_is_noted_is_told_and_judged_as_ever() -> None:
    for lies_on, is_told in [
        ("", False),  # nothing
        ("n1/uid-n1", False),  # this machine
        ("n1/uid-earlier", True),  # an earlier machine of this name
        ("n2/uid-n2", True),  # another one
        ("garbage", True),  # no machine
    ]:
        before = assess(samples.idle())
        after = assess(samples.idle(volumes=(samples.volume(lies_on=lies_on),)))
        assert [note for note in after.notes if names.LIES_ON in note] == (
            [note for note in after.notes if "pv-0" in note] if is_told else []
        )
        assert any(names.LIES_ON in note for note in after.notes) is is_told
        assert (after.drain, after.retire, after.blockers) == (before.drain, before.retire, before.blockers)
