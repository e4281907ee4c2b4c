"""What is on a node, who uses it, what blocks a reboot or a retirement, what becomes of the pods, and what holds for every node."""

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.assess import Assessment, Verdict, assess
from sidecar.drain.blockers import OF_THINGS, Blocker, is_bare
from sidecar.drain.look_io import LATELY, MADE_AGAIN_WITHIN, RecentUse
from sidecar.drain.snapshot import InFlight, Own, Snapshot, Unplaced
from sidecar.drain.things import Thing, classify, used_though_acknowledged
from sidecar.drain.words import Fate, Intent, Policy, Reason, Status, VolumeClass, first_few, quoted
from sidecar.model import names
from sidecar.model.nodes import Pod
from sidecar.model.objects import ClaimRef, Notes
from tests.harness.drain.drawn import drawn, permuted
from tests.harness.drain.samples import GIB, NOW, claim, class_, content, idle, node, notes, owner, pod, snapshot, stamp, used, volume

REBOOT, RETIRE = Intent.REBOOT, Intent.RETIRE
TRUE, FALSE, UNKNOWN = Status.TRUE, Status.FALSE, Status.UNKNOWN
FLIGHT = InFlight(claim("new"))
DB = pod("db-0", "data-0")
WAITING = pod("db-0", "data-0", node="", phase="Pending", ready=False)
LATE = Own(lately_used=frozenset({"apps/data-0"}))
GIVEN_UP, KEPT = volume(phase="Released"), volume(phase="Released", reclaim_policy="Retain")


def acked(text: str = "ann", **changes: Any) -> Any:
    return volume(notes=notes(ack=text), **changes)


# --- what each thing is -----------------------------------------------------------------------------------------------


def only(found: Snapshot) -> Thing:
    (one,) = classify(found)
    return one


@pytest.mark.parametrize(
    ("changes", "class_"),
    [
        pytest.param({}, VolumeClass.IDLE, id="bound, and no pod uses it"),
        pytest.param({"phase": ""}, VolumeClass.IDLE, id="no phase yet"),
        pytest.param({"phase": "Released"}, VolumeClass.RELEASING, id="released"),
        pytest.param({"phase": "Failed"}, VolumeClass.RELEASING, id="its deletion failed"),
        pytest.param({"deleting": True}, VolumeClass.RELEASING, id="being deleted"),
        pytest.param(
            {"deleting": True, "reclaim_policy": "Retain"}, VolumeClass.IDLE, id="its object is being deleted, and its data stays"
        ),
        pytest.param({"phase": "Released", "reclaim_policy": "Retain"}, VolumeClass.RETAINED, id="kept"),
        pytest.param({"phase": "Failed", "reclaim_policy": "Retain"}, VolumeClass.RETAINED, id="failed and kept"),
        pytest.param({"phase": "Available", "claim": None, "reclaim_policy": "Retain"}, VolumeClass.RETAINED, id="never bound, and kept"),
        pytest.param({"phase": "Available", "claim": None}, VolumeClass.IDLE, id="never bound"),
    ],
)
def test_what_a_volume_is_that_no_pod_uses(changes: dict[str, Any], class_: VolumeClass) -> None:
    one = only(idle(volumes=(replace(volume(), **changes),)))
    assert (one.class_, one.use.pods) == (class_, ())


OF_POD = replace(owner("Pod", "db-0"), uid="uid-apps-db-0")


def ephemeral(**changes: Any) -> Snapshot:
    """A volume that db-0 asked for as a generic ephemeral one."""
    its = pod("db-0", "db-0-scratch", **{"ephemeral": ("db-0-scratch",)} | changes)
    return used(volumes=(volume("pv-0", "db-0-scratch"),), claims=(claim("db-0-scratch", owner=OF_POD),), pods=(its,))


@pytest.mark.parametrize(
    ("found", "class_"),
    [
        pytest.param(used(), VolumeClass.IN_USE, id="a pod uses it"),
        pytest.param(used(volumes=(volume(deleting=True),)), VolumeClass.IN_USE, id="a pod uses it, whatever is to become of it"),
        pytest.param(used(claims=()), VolumeClass.IN_USE, id="its claim is not known, and counts by its name"),
        pytest.param(idle(claimants=(WAITING,)), VolumeClass.IN_USE, id="a pod that was made again waits for it"),
        pytest.param(idle(claimants=(pod("far", "data-0", node="n2"),)), VolumeClass.IN_USE, id="a pod of another node names it"),
        pytest.param(idle(attached=frozenset({"pv-0"})), VolumeClass.IN_USE, id="it is attached"),
        pytest.param(idle(own=LATE), VolumeClass.IN_USE, id="a pod used it a moment ago"),
        pytest.param(
            used(claims=(claim(uid="another"),)), VolumeClass.IDLE, id="a later claim of the name, and its pod, have another volume"
        ),
        pytest.param(used(claims=(claim(volume_name="pv-9"),)), VolumeClass.IDLE, id="its claim is bound to another volume"),
        pytest.param(idle(claimants=(replace(WAITING, namespace="x"),)), VolumeClass.IDLE, id="a claim of the name in another namespace"),
        pytest.param(ephemeral(), VolumeClass.EPHEMERAL, id="its pod asked for it as ephemeral"),
        pytest.param(ephemeral(phase="Succeeded"), VolumeClass.EPHEMERAL, id="its pod has ended"),
        pytest.param(ephemeral(ephemeral=()), VolumeClass.IN_USE, id="a pod owns the claim, but not as ephemeral: that is data"),
        pytest.param(ephemeral(uid="another"), VolumeClass.IN_USE, id="a later pod of the name"),
        pytest.param(snapshot(in_flight=(FLIGHT,)), VolumeClass.IN_FLIGHT, id="being created"),
        pytest.param(snapshot(contents=(content(),)), VolumeClass.SNAPSHOT, id="a snapshot"),
        pytest.param(snapshot(own=Own(untracked=("lv-7", "lv-7"))), VolumeClass.UNTRACKED, id="known to the driver alone"),
        pytest.param(snapshot(pods=(pod("a", inline=("local.example.com",)),)), VolumeClass.EPHEMERAL, id="an inline volume"),
    ],
)
def test_what_each_thing_is(found: Snapshot, class_: VolumeClass) -> None:
    assert only(found).class_ is class_


def test_a_volume_that_exists_is_in_flight_no_more_and_a_claim_of_another_does_not_speak_for_it() -> None:
    there = replace(volume(claim="new"), claim=ClaimRef("uid-apps-new", "apps", "new"))
    assert [item.name for item in classify(snapshot(volumes=(there,), in_flight=(FLIGHT, FLIGHT)))] == ["pv-0"]
    one = only(idle(claims=(claim(policy="Ignore", uid="another"),)))
    assert (one.object.kind, one.policies[Intent.RETIRE].policy) == (names.VOLUME, Policy.BLOCK)


# --- what blocks ------------------------------------------------------------------------------------------------------


Reasons = tuple[set[Reason], set[Reason]]


def blocking(found: Snapshot) -> Reasons:
    """For a reboot, and for retiring."""
    against = assess(found).blockers
    reboot, retire = ({each.reason for each in against if intent in each.blocks} for intent in Intent)
    return reboot, retire


def says(*pairs: tuple[str, str]) -> Notes:
    return tuple(sorted(pairs))


IN_USE, STRAND, LAST = Reason.VOLUME_IN_USE, Reason.WOULD_STRAND, Reason.LAST_COPY
ANEW, CONFLICT = Reason.REPROVISION_PENDING, Reason.POLICY_CONFLICT


@pytest.mark.parametrize(
    ("said", "in_use", "unused"),
    [
        pytest.param({}, ({*()}, {IN_USE}), ({*()}, {LAST}), id="nothing"),
        pytest.param({"policy": "Ignore"}, ({*()}, {*()}), ({*()}, {*()}), id="Ignore"),
        pytest.param({"policy": "AllowIdle"}, ({*()}, {IN_USE}), ({*()}, {LAST}), id="AllowIdle loosens a reboot only"),
        pytest.param({"notes": says((names.DRAIN_POLICY_RETIRE, "AllowIdle"))}, ({*()}, {IN_USE}), ({*()}, {*()}), id="AllowIdle, retire"),
        pytest.param({"policy": "Block"}, ({STRAND}, {IN_USE}), ({*()}, {LAST}), id="Block"),
        pytest.param({"policy": "Reprovision"}, ({*()}, {ANEW}), ({*()}, {LAST}), id="Reprovision"),
        pytest.param({"policy": "Foo"}, ({CONFLICT}, {IN_USE}), ({*()}, {LAST}), id="a wrong word, where something would block anyhow"),
    ],
)
def test_what_a_policy_lets_go(said: dict[str, Any], in_use: Reasons, unused: Reasons) -> None:
    claims = (claim(**said),)
    assert (blocking(used(claims=claims)), blocking(idle(claims=claims))) == (in_use, unused)
    for after in ({"claimants": (WAITING,)}, {"own": LATE}, {"attached": frozenset({"pv-0"})}):
        assert blocking(idle(claims=claims, **after)) == in_use, "an eviction makes no volume idle"


BARE, OVERDUE = replace(DB, owner=None), replace(DB, deleting_since=stamp(301))
BLOCKED = (claim(policy="Block"),)
AGENT = pod("agent", "data-0", owner=owner("DaemonSet"))
UNREAD = frozenset({"namespace apps"})


@pytest.mark.parametrize(
    ("found", "reboot", "retire"),
    [
        pytest.param(snapshot(in_flight=(FLIGHT,)), {Reason.PROVISIONING_IN_FLIGHT}, {Reason.PROVISIONING_IN_FLIGHT}, id="being created"),
        pytest.param(snapshot(contents=(content(),)), {}, {Reason.SNAPSHOT_ON_NODE}, id="a snapshot"),
        pytest.param(snapshot(contents=(content(ack="ann"),)), {}, {}, id="a snapshot that may be lost"),
        pytest.param(snapshot(contents=(content(ack=" "),)), {}, {Reason.SNAPSHOT_ON_NODE}, id="an acknowledgement that says nothing"),
        pytest.param(snapshot(own=Own(untracked=("lv-7",))), {}, {}, id="untracked"),
        pytest.param(idle(volumes=(GIVEN_UP,), claims=()), {}, {Reason.RELEASE_PENDING}, id="released"),
        pytest.param(idle(volumes=(acked(phase="Released"),)), {}, {}, id="released and acknowledged"),
        pytest.param(idle(volumes=(volume(phase="Released", policy="Ignore"),)), {}, {}, id="released under Ignore"),
        pytest.param(idle(volumes=(KEPT,), claims=()), {}, {Reason.RECLAIM_RETAIN}, id="kept on purpose"),
        pytest.param(idle(volumes=(acked(phase="Released", reclaim_policy="Retain"),)), {}, {}, id="kept, and may be lost"),
        pytest.param(idle(volumes=(acked(),)), {}, {}, id="idle and acknowledged"),
        pytest.param(used(volumes=(acked(),)), {}, {IN_USE}, id="acknowledged, and used again"),
        pytest.param(idle(volumes=(acked(),), own=LATE), {}, {IN_USE}, id="acknowledged, and used a moment ago"),
        pytest.param(used(pods=(BARE,)), {Reason.BARE_POD}, {IN_USE, Reason.BARE_POD}, id="no controller makes its pod again"),
        pytest.param(used(pods=(replace(BARE, deleting_since=stamp()),)), {}, {IN_USE}, id="which was asked to end"),
        pytest.param(used(pods=(replace(BARE, static=True),)), {}, {IN_USE}, id="which is static"),
        pytest.param(used(pods=(OVERDUE,)), {Reason.POD_TERMINATING}, {IN_USE}, id="a pod that does not end"),
        pytest.param(used(pods=(replace(DB, deleting_since=stamp(300)),)), {}, {IN_USE}, id="a pod that ends"),
        pytest.param(used(pods=(OVERDUE,), node=node(ready="Unknown")), {}, {IN_USE}, id="a pod that does not end on a silent node"),
        pytest.param(used(pods=(AGENT,), claims=BLOCKED), {}, {IN_USE}, id="only a DaemonSet's pod uses it: no drain evicts that"),
        pytest.param(used(pods=(AGENT, DB), claims=BLOCKED), {STRAND}, {IN_USE}, id="a DaemonSet's pod and another"),
        pytest.param(used(pods=(AGENT,), claims=BLOCKED, own=LATE), {STRAND}, {IN_USE}, id="a DaemonSet's, and one of a moment ago"),
        pytest.param(
            used(unread=UNREAD, own=Own(default_policy=Policy.BLOCK)), {}, {}, id="an uncertain policy blocks as the laxest would"
        ),
        pytest.param(used(pods=(BARE,), unread=UNREAD), {Reason.BARE_POD}, {Reason.BARE_POD}, id="and a bare pod whatever the policy is"),
        pytest.param(used(pods=(BARE,), claims=(), unread=frozenset({"claim apps/data-0"})), {}, {}, id="but not if its claim is unread"),
        pytest.param(used(volumes=(volume(policy="Ignore"),), claims=BLOCKED), {CONFLICT}, {CONFLICT}, id="volume and claim differ"),
        pytest.param(
            used(volumes=(volume(policy="Ignore"),), claims=(claim(policy="AllowIdle"),)),
            {},
            {CONFLICT},
            id="they differ for retiring only",
        ),
        pytest.param(ephemeral(), {}, {}, id="it goes with its pod"),
        pytest.param(ephemeral(owner=None), {}, {}, id="it goes with its pod, whoever makes that"),
    ],
)
def test_what_blocks(found: Snapshot, reboot: set[Reason], retire: set[Reason]) -> None:
    assert blocking(found) == (set(reboot), set(retire))


def test_a_blocker_says_all_that_is_needed_and_reboots_come_first_then_the_largest() -> None:
    (one,) = assess(idle()).blockers
    assert (one.object.kind, one.object.namespace, one.object.name, one.object.uid) == (names.CLAIM, "apps", "data-0", "uid-apps-data-0")
    assert (one.volume, one.bytes, one.class_, one.policy, one.policy_source) == (
        "pv-0",
        10 * GIB,
        VolumeClass.IDLE,
        Policy.BLOCK,
        "default",
    )
    assert (one.message, one.remedy) == ("no pod uses it", LAST.remedy)
    volumes = (volume(gib=1), volume("pv-1", "data-1", gib=7), volume("pv-2", "data-2", gib=2))
    claims = (claim("data-0"), claim("data-1"), claim("data-2", policy="Block"))
    found = assess(used(volumes=volumes, claims=claims, pods=(pod("db-2", "data-2"),)))
    assert [(each.object.name, REBOOT in each.blocks) for each in found.blockers] == [
        ("data-2", True),
        ("data-1", False),
        ("data-2", False),
        ("data-0", False),
    ]


def test_every_reason_of_the_tables_is_explained_with_what_to_do_and_each_that_withholds_something_is_in_the_words() -> None:
    assert all(row.reason.remedy for row in OF_THINGS)
    assert {reason for reason in Reason if not reason.remedy} == {Reason.NOTHING_BLOCKS}
    assert all(bool(each.says) == bool(each.remedy) and "\n" not in each.says + each.remedy for each in Reason)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"pods": (DB,), "attached": frozenset({"pv-0"})}, "used by apps/db-0", id="a pod here comes first"),
        pytest.param({"claimants": (WAITING,)}, "pod apps/db-0, which waits for a node, names its claim", id="one that waits"),
        pytest.param({"claimants": (pod("r", "data-0", node="n2"),)}, "pod apps/r, on node n2, names its claim", id="one elsewhere"),
        pytest.param(
            {"claimants": tuple(replace(WAITING, name=f"db-{n}") for n in range(4))},
            "pod apps/db-0 and 3 more, which waits for a node, names its claim",
            id="several",
        ),
        pytest.param({"attached": frozenset({"pv-0"})}, "it is attached to this node", id="attached"),
        pytest.param({"own": LATE}, "a pod used it until a moment ago, or may have: that counts for a minute", id="a moment ago"),
    ],
)
def test_the_message_says_who_uses_it(changes: dict[str, Any], message: str) -> None:
    assert assess(idle(**changes)).blockers[0].message == message


# --- the remedies -----------------------------------------------------------------------------------------------------

LOOSENS = {names.DRAIN_POLICY_REBOOT: REBOOT, names.DRAIN_POLICY_RETIRE: RETIRE, names.ACKNOWLEDGED: RETIRE}
_ADVICE = re.compile(rf"({re.escape(names.GROUP)}/[\w.-]+): (\w+)")


def heeding(found: Snapshot, blocker: Blocker) -> Snapshot:
    """The same with the annotation on the object that the remedy speaks of."""
    ((key, word),) = _ADVICE.findall(blocker.remedy)

    def noted(before: Notes) -> Notes:
        return tuple(sorted({**dict(before), key: word}.items()))

    if blocker.class_ is VolumeClass.SNAPSHOT:
        return replace(found, contents=tuple(replace(item, notes=noted(item.notes)) for item in found.contents))
    if key == names.ACKNOWLEDGED or f"PersistentVolume {blocker.volume}" in blocker.remedy:
        return replace(found, volumes=tuple(replace(item, notes=noted(item.notes)) for item in found.volumes))
    its = found.claims[f"{blocker.object.namespace}/{blocker.object.name}"]
    return replace(found, claims={its.full_name: replace(its, notes=noted(its.notes))})


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        pytest.param(used(claims=BLOCKED), STRAND, id="it would strand"),
        pytest.param(used(), IN_USE, id="in use"),
        pytest.param(idle(), LAST, id="idle"),
        pytest.param(idle(claims=(claim(policy="AllowIdle"),)), LAST, id="idle, a word that loosens reboots only"),
        pytest.param(idle(volumes=(GIVEN_UP,)), Reason.RELEASE_PENDING, id="released"),
        pytest.param(idle(volumes=(KEPT,)), Reason.RECLAIM_RETAIN, id="kept"),
        pytest.param(snapshot(contents=(content(),)), Reason.SNAPSHOT_ON_NODE, id="a snapshot"),
        pytest.param(idle(volumes=(volume(policy="Block"),)), LAST, id="the policy stands on the volume"),
        pytest.param(used(volumes=(volume(policy="Block"),)), STRAND, id="the policy stands on the volume, in use"),
        pytest.param(idle(claims=()), LAST, id="its claim is gone"),
        pytest.param(idle(volumes=(volume(claim="", phase="Available"),), claims=()), LAST, id="it never had a claim"),
    ],
)
def test_whoever_does_what_a_remedy_says_loosens_the_verdict_it_speaks_of_and_no_other(found: Snapshot, reason: Reason) -> None:
    before = assess(found)
    (blocker,) = (item for item in before.blockers if item.reason is reason)
    ((key, _),) = _ADVICE.findall(blocker.remedy)
    after, (other,) = assess(heeding(found, blocker)), set(Intent) - {LOOSENS[key]}
    assert LOOSENS[key] in blocker.blocks and after.verdict(LOOSENS[key]).status is TRUE
    assert {b.reason for b in after.blockers if other in b.blocks} == {b.reason for b in before.blockers if other in b.blocks}


# --- the verdicts -----------------------------------------------------------------------------------------------------


def verdicts(found: Assessment) -> tuple[Status, Status]:
    return found.drain.status, found.retire.status


SHARED = Unplaced("pv-9", "two nodes match", (), volume("pv-9"))
LOST = Unplaced("snap-9", "its volume is gone", ())


def unplaced(**changes: Any) -> Snapshot:
    found = volume("pv-9", **changes)
    return snapshot(unplaced=(Unplaced("pv-9", "two nodes match", found.notes, found),))


@pytest.mark.parametrize(
    ("found", "expected", "reason"),
    [
        pytest.param(snapshot(), (TRUE, TRUE), Reason.NOTHING_BLOCKS, id="nothing is here"),
        pytest.param(idle(claims=(claim(policy="Ignore"),)), (TRUE, TRUE), Reason.NOTHING_BLOCKS, id="nothing blocks"),
        pytest.param(used(ignorance=("claims",)), (UNKNOWN, FALSE), IN_USE, id="not all is known, and something blocks"),
        pytest.param(snapshot(ignorance=("claims",)), (UNKNOWN, UNKNOWN), Reason.NOT_KNOWN, id="not all is known"),
        pytest.param(idle(unread=UNREAD), (UNKNOWN, UNKNOWN), Reason.NOT_KNOWN, id="a word could not be read"),
        pytest.param(used(node=None), (UNKNOWN, FALSE), IN_USE, id="there is no Node"),
        pytest.param(snapshot(node=None), (UNKNOWN, UNKNOWN), Reason.NOT_KNOWN, id="there is no Node, and nothing"),
        pytest.param(used(node=node(ready="Unknown")), (UNKNOWN, FALSE), Reason.SOURCE_OFFLINE, id="it is silent, and data is there"),
        pytest.param(used(node=node(ready="Unknown"), claims=BLOCKED), (UNKNOWN, FALSE), Reason.SOURCE_OFFLINE, id="it is silent"),
        pytest.param(snapshot(node=node(ready="Unknown")), (UNKNOWN, UNKNOWN), Reason.SOURCE_OFFLINE, id="it is silent, and empty"),
        pytest.param(used(node=node(ready="False")), (TRUE, FALSE), IN_USE, id="its kubelet is unwell"),
        pytest.param(snapshot(unplaced=(SHARED,)), (TRUE, UNKNOWN), Reason.NOT_KNOWN, id="a volume may be here"),
        pytest.param(snapshot(unplaced=(LOST,)), (TRUE, UNKNOWN), Reason.NOT_KNOWN, id="a snapshot may be here"),
        pytest.param(unplaced(notes=notes(ack="ann")), (TRUE, TRUE), Reason.NOTHING_BLOCKS, id="which may be lost"),
        pytest.param(unplaced(policy="Ignore"), (TRUE, TRUE), Reason.NOTHING_BLOCKS, id="which may be lost by its policy"),
        pytest.param(unplaced(phase="Released"), (TRUE, TRUE), Reason.NOTHING_BLOCKS, id="which is to be deleted anyhow"),
        pytest.param(unplaced(phase="Released", reclaim_policy="Retain"), (TRUE, UNKNOWN), Reason.NOT_KNOWN, id="which was kept"),
        pytest.param(
            replace(unplaced(), own=Own(default_policy=Policy.IGNORE)), (TRUE, UNKNOWN), Reason.NOT_KNOWN, id="a driver's default"
        ),
        pytest.param(snapshot(unplaced=(replace(LOST, notes=notes(ack="a")),)), (TRUE, TRUE), Reason.NOTHING_BLOCKS, id="snapshot, acked"),
        pytest.param(snapshot(unplaced=(replace(LOST, notes=notes(ack="a")), SHARED)), (TRUE, UNKNOWN), Reason.NOT_KNOWN, id="one of two"),
        pytest.param(snapshot(own=Own(not_listed="it broke")), (TRUE, UNKNOWN), Reason.NOT_KNOWN, id="the driver has not said"),
        pytest.param(snapshot(own=Own(untracked_unknown="x")), (TRUE, TRUE), Reason.NOTHING_BLOCKS, id="a driver that cannot list"),
    ],
)
def test_what_is_not_known_is_never_true_and_what_is_known_to_block_stays_false(
    found: Snapshot, expected: tuple[Status, Status], reason: Reason
) -> None:
    judged = assess(found)
    assert (verdicts(judged), judged.retire.reason) == (expected, reason)
    assert judged.holds_volumes is (True if judged.things else None if found.ignorance or found.unread or found.node is None else False)


def test_a_verdict_names_the_worst_and_counts_the_rest() -> None:
    volumes = (volume(gib=1), volume("pv-1", "data-1", gib=2))
    found = assess(idle(volumes=volumes, claims=(claim(), claim("data-1"))))
    assert found.retire == Verdict(FALSE, LAST, "PersistentVolumeClaim apps/data-1: LastCopy and 1 more")
    assert assess(idle(volumes=(GIVEN_UP,), claims=())).retire.message == "PersistentVolume pv-0: ReleasePending"
    several = assess(snapshot(unplaced=(SHARED, replace(SHARED, name="pv-8")))).retire.message
    assert "pv-9" in several and "1 more like it" in several and names.ACKNOWLEDGED in several


@pytest.mark.parametrize(
    ("found", "note"),
    [
        pytest.param(used(node=node(ready="False")), "the kubelet reports that the node is not ready", id="not ready"),
        pytest.param(
            snapshot(own=Own(untracked=tuple(f"lv-{n}" for n in range(5)))),
            "known to the driver alone: 'lv-0', 'lv-1', 'lv-2' and 2 more",
            id="untracked",
        ),
        pytest.param(snapshot(own=Own(untracked=("x" * 99,))), f"known to the driver alone: '{'x' * 40}…'", id="a long handle"),
        pytest.param(
            snapshot(own=Own(untracked_unknown="it broke")),
            "whether the driver has volumes without a PersistentVolume is not known: it broke",
            id="the driver cannot list",
        ),
        pytest.param(snapshot(contents=(content(ack="ann"),)), "acknowledged as dispensable: snap-0", id="acknowledged"),
        pytest.param(idle(claims=(claim(policy="Ignore"),)), "may be lost under the policy Ignore: pv-0", id="Ignore"),
        pytest.param(unplaced(policy="Ignore"), "may be lost, wherever the data is: pv-9", id="Ignore, wherever it is"),
        pytest.param(
            idle(classes=(class_(policy="Foo"),)), "StorageClass local says 'Foo', which is not a policy: Block applies: pv-0", id="a word"
        ),
        pytest.param(
            idle(own=LATE),
            "a volume counts as used for a minute after its last pod, which may come back in that time: pv-0",
            id="a moment ago",
        ),
    ],
)
def test_what_is_worth_knowing_and_blocks_nothing_is_noted(found: Snapshot, note: str) -> None:
    assert note in assess(found).notes


# --- the pods ---------------------------------------------------------------------------------------------------------

TWO = {"volumes": (volume(), volume("pv-1", "log-0")), "pods": (pod("db-0", "data-0", "log-0"),)}
MAKES = Own(reprovisions=True)


@pytest.mark.parametrize(
    ("found", "fates"),
    [
        pytest.param(used(), (Fate.RETURNS, Fate.STRANDED), id="it waits for its volume"),
        pytest.param(used(claims=(claim(policy="Ignore"),)), (Fate.RETURNS, Fate.LOST), id="its data may be lost"),
        pytest.param(used(claims=(claim(policy="Reprovision"),), own=MAKES), (Fate.RETURNS, Fate.REPROVISIONED), id="it is made anew"),
        pytest.param(used(claims=(claim(policy="Reprovision"),)), (Fate.RETURNS, Fate.STRANDED), id="nobody makes it anew"),
        pytest.param(
            used(**TWO, claims=(claim(policy="Reprovision"), claim("log-0", policy="Block")), own=MAKES),
            (Fate.RETURNS, Fate.STRANDED),
            id="one volume that may not go keeps it",
        ),
        pytest.param(used(pods=(AGENT,)), (Fate.STAYS, Fate.STAYS), id="a DaemonSet's"),
        pytest.param(used(pods=(replace(DB, static=True),)), (Fate.STAYS, Fate.STAYS), id="static"),
        pytest.param(used(pods=(BARE,), claims=(claim(policy="Ignore"),)), (Fate.LOST, Fate.LOST), id="nobody makes it again"),
        pytest.param(ephemeral(), (Fate.MOVES_FREE, Fate.MOVES_FREE), id="it takes its volume with it"),
        pytest.param(idle(claimants=(WAITING,)), (Fate.RETURNS, Fate.STRANDED), id="evicted, it waits"),
    ],
)
def test_what_becomes_of_a_pod(found: Snapshot, fates: tuple[Fate, Fate]) -> None:
    (fate,) = assess(found).pods
    assert (fate.reboot, fate.retire) == fates and fate.why


def test_only_pods_that_use_something_of_the_driver_are_told_and_a_bare_pod_has_no_controller() -> None:
    others = (pod("web"), pod("done", "data-0", phase="Succeeded"), pod("far", "other", node="n2"))
    assert [fate.pod.name for fate in assess(used(pods=(DB, *others))).pods] == ["db-0"]
    assert [is_bare(each) for each in (BARE, DB, replace(BARE, static=True), replace(BARE, deleting_since=stamp()))] == [True, *[False] * 3]


def test_an_acknowledgement_is_to_be_taken_off_a_volume_that_a_pod_uses() -> None:
    for found, off in [
        (used(volumes=(acked(),)), ["pv-0"]),
        (idle(volumes=(acked(),), claimants=(WAITING,)), ["pv-0"]),
        (idle(volumes=(acked(),)), []),
        (idle(volumes=(acked(),), own=LATE), []),
        (used(), []),
    ]:
        assert [item.name for item in used_though_acknowledged(classify(found))] == off


# --- who has used it a moment ago -------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_claim_counts_as_used_for_a_minute_after_its_last_pod() -> None:
    clock = Clock()
    recent, its = RecentUse(clock=clock), ("apps/data-0", "apps/other")
    assert recent.among(its) == set(its), "before it sees any pod"
    recent.began()
    clock.now = LATELY
    assert recent.among(its) == set()
    recent.named(DB)
    recent.named(pod("done", "other", phase="Succeeded"))
    recent.named(pod("agent", "other", owner=owner("DaemonSet")))
    assert recent.among(its) == {"apps/data-0"}
    clock.now += LATELY
    assert recent.among(its) == set()
    listed_at = clock.now - LATELY + MADE_AGAIN_WITHIN - 1
    assert recent.among(its, listed_at=listed_at) == {"apps/data-0"}, "its pod may have been made again after that list"
    assert recent.among(its, listed_at=listed_at + 1) == set()


def test_what_it_remembers_has_an_end() -> None:
    clock = Clock()
    recent = RecentUse(clock=clock)
    for clock.now in range(5000):
        recent.named(pod("p", f"claim-{clock.now}"))
    assert len(recent._named_at) < 1200


# --- for every node ---------------------------------------------------------------------------------------------------

SEEDS = st.integers(0, 2**32)


@given(SEEDS)
def test_the_order_of_what_is_known_means_nothing(seed: int) -> None:
    found = drawn(Random(seed))
    assert assess(permuted(found, Random(seed + 1))) == assess(found)


@given(SEEDS)
def test_ignorance_never_makes_a_verdict_true_and_takes_no_blocker_away(seed: int) -> None:
    found = drawn(Random(seed))
    before, after = assess(found), assess(replace(found, ignorance=(*found.ignorance, "something else")))
    for intent in Intent:
        assert after.verdict(intent).status is not TRUE
        assert after.verdict(intent).status is before.verdict(intent).status or before.verdict(intent).status is TRUE
    assert after.blockers == before.blockers


@given(SEEDS)
def test_the_mere_passing_of_time_changes_nothing_that_is_told(seed: int) -> None:
    """Else a report would be written at every look."""
    found = drawn(Random(seed))
    now, later = assess(found), assess(replace(found, now=NOW + 7.0))
    assert replace(later, at=now.at) == now


@given(SEEDS)
def test_what_is_true_has_no_blocker_and_leaves_nothing_open_and_what_is_false_has_one(seed: int) -> None:
    known = drawn(Random(seed))
    found = assess(known)
    for intent in Intent:
        against = [blocker for blocker in found.blockers if intent in blocker.blocks]
        assert found.verdict(intent).status is not TRUE or not (against or known.ignorance or known.unread)
        assert found.verdict(intent).status is not FALSE or against


def made_again(found: Snapshot, gone: Pod) -> Snapshot:
    again = replace(gone, uid=f"{gone.uid}-again", node="", phase="Pending", ready=False, deleting_since="")
    return replace(found, claimants=(*found.claimants, again))


def about_to_be_made_again(found: Snapshot, gone: Pod) -> Snapshot:
    return replace(found, own=replace(found.own, lately_used=found.own.lately_used | set(gone.claim_names)))


@pytest.mark.parametrize("afterwards", [made_again, about_to_be_made_again])
@given(SEEDS)
def test_no_eviction_makes_a_verdict_true(afterwards: Callable[[Snapshot, Pod], Snapshot], seed: int) -> None:
    found = drawn(Random(seed))
    before = assess(found)
    bare = {blocker.object.name for blocker in before.blockers if blocker.object.kind == names.POD}
    for each in found.pods:
        if each.owner is None or each.ended or each.stays or each.name in bare:
            continue
        left = replace(found, pods=tuple(other for other in found.pods if other != each))
        after = assess(afterwards(left, each))
        for intent in Intent:
            assert before.verdict(intent).status is TRUE or after.verdict(intent).status is not TRUE, (each, intent)


def test_parts_of_sentences_have_an_end() -> None:
    assert (first_few(["a", "b"]), first_few(["a", "b", "c", "d"])) == ("a, b", "a, b, c and 1 more")
    assert quoted("x" * 300_000) == f"'{'x' * 40}…'" and quoted("a\nb") == r"'a\nb'"
