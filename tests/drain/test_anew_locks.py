"""The locks before a replica's data, one by one: a scene in which all are open, and for each what alone shuts it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sidecar.drain.anew import Facts
from sidecar.drain.anew_locks import LOCKS, LocksView, shut
from sidecar.drain.snapshot import Own
from sidecar.drain.words import Reason
from sidecar.model import names, timestamps
from sidecar.model.nodes import Toleration
from sidecar.model.objects import Owner
from sidecar.model.topology import Requirement, Term
from tests.harness.drain import samples
from tests.harness.drain.replica import LABELS, SETTINGS, claim, facts, found, judged, noted, replica, stateful_set, target, view, volume
from tests.harness.drain.samples import CLASS, KEY

TOLERANT = (Toleration("", "Exists", "", ""),)
ANYWHERE = {"operator": "Exists"}
EVERYWHERE = (Term((Requirement(KEY, "In", ("n1",)),)), Term((Requirement(KEY, "In", ("n2",)),)))
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
OURS = {"matchLabels": {"app": "db"}}
R = Reason
Scene = Callable[[], LocksView]


def with_claim(each: Any) -> LocksView:
    return view(facts(claims={"data-db-0": each}))


def with_set(**changes: Any) -> LocksView:
    return view(facts(workload=stateful_set(**changes)))


def with_pods(*pods: Any, **changes: Any) -> LocksView:
    return view(facts(*pods, **changes))


def beside(each: Any, name: str = "logs", **pod: Any) -> LocksView:
    """db-0 has another claim too, which is not made anew."""
    mine = replica(0, **{"claims": ("data-db-0", name)} | pod)
    return with_pods(mine, replica(1), replica(2), claims={"data-db-0": found()} | ({name: each} if each else {}))


def of_another_driver(**changes: Any) -> Any:
    return found(claim=samples.claim("logs"), volume=volume("pv-1", "logs", driver="other", **changes))


def own_scratch(*, of: str = replica(0).uid, deleting: bool = False, there: bool = True, **its_volume: Any) -> LocksView:
    """db-0 waits for a node, with a claim for a generic ephemeral volume."""
    own = samples.claim("db-0-x", owner=Owner("v1", "Pod", "db-0", of, controller=True), deleting=deleting)
    scratch = found(claim=own, of_pod=True, volume=volume("pv-1", "db-0-x", **its_volume) if there else None)
    seen = beside(scratch, "db-0-x", node="", ready=False, ephemeral=("db-0-x",))
    return replace(seen, snapshot=judged(volumes=(volume(), volume("pv-1", "db-0-x"))))


PAUSE: dict[str, Any] = {"now": timestamps.to_seconds("2026-01-01T00:30:00Z"), "settings": replace(SETTINGS, reprovision_pause=1800.0)}
SEVERAL = replace(SETTINGS, limit=2)


def ready_since(when: str, **changes: Any) -> LocksView:
    """db-1 since then, db-2 for long."""
    pods = facts(replica(0), replica(1, ready_since=when, **changes), replica(2, ready_since="2025-01-01T00:00:00Z"))
    return view(pods, **PAUSE)


def apart(key: str = HOST, selector: Any = OURS, *, rule: str = "requiredDuringSchedulingIgnoredDuringExecution", **more: Any) -> Any:
    return {"affinity": {"podAntiAffinity": {rule: [{"topologyKey": key, "labelSelector": selector} | more]}}}


def even(key: str = HOST, **more: Any) -> Any:
    return {
        "topologySpreadConstraints": [
            {"topologyKey": key, "labelSelector": OURS, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"} | more
        ]
    }


def crowded(spec: Any, *others: str) -> LocksView:
    """db on n1 to n3, of which n1 is emptied, in a cluster with these other nodes; all have room."""
    return view(facts(workload=stateful_set(pod=spec)), judged(*(others or ("n2", "n3"))))


def asking(of_cluster: dict[str, Any] | None = None, classes: Any = (), **wish: Any) -> LocksView:
    """The template asks for this now; the claim that is there was made of `CLASS`, with 10 GiB."""
    known = {each.name: each for each in (samples.class_(), *classes)}
    return view(facts(workload=stateful_set(wish=wish), classes=known), judged(**of_cluster or {}))


def mine(snapshot: Any = None, **of_facts: Any) -> LocksView:
    return view(facts(**of_facts), snapshot)


def of(name: str, lock: str, reason: Reason, scene: Scene) -> Any:
    return pytest.param(scene, f"_{lock}", reason, id=name)


def refused(of: LocksView) -> tuple[str, Reason] | None:
    for lock in LOCKS:
        if refusal := lock(of):
            return lock.__name__, refusal[0]
    return None


LARGE = {"resources": {"requests": {"storage": "200Gi"}}}
SHUT = [
    of("the flag", "allowed", R.CLAIM_KEPT, lambda: view(settings=replace(SETTINGS, reprovisions=False))),
    of("something could not be read", "sure", R.NOT_KNOWN, lambda: view(snapshot=judged(ignorance=("pods could not be read",)))),
    of("the driver has not listed", "sure", R.NOT_KNOWN, lambda: view(snapshot=judged(own=Own(not_listed="it was not asked")))),
    of("the node is not ready", "sure", R.SOURCE_OFFLINE, lambda: view(snapshot=judged(node=samples.node(ready="False")))),
    of("the namespace ends", "sure", R.CLAIM_KEPT, lambda: mine(namespace_ends=True)),
    # the claims as they were judged
    of("another uid", "same", R.CLAIM_KEPT, lambda: with_claim(found(claim=claim(uid="uid-new")))),
    of("the claim is gone", "same", R.CLAIM_KEPT, lambda: mine(claims={})),
    of("the claim is being deleted", "same", R.CLAIM_KEPT, lambda: with_claim(found(claim=claim(deleting=True)))),
    of("its volume is gone", "same", R.CLAIM_KEPT, lambda: with_claim(found(volume=None))),
    of("the volume is another claim's", "same", R.CLAIM_KEPT, lambda: with_claim(found(volume=volume(of="data-db-1")))),
    of("the claim is bound to another volume", "same", R.CLAIM_KEPT, lambda: with_claim(found(claim=claim(volume_name="pv-9")))),
    of("the volume is of another driver", "same", R.CLAIM_KEPT, lambda: with_claim(found(volume=volume(driver="other")))),
    of("the volume is not here", "same", R.CLAIM_KEPT, lambda: view(snapshot=judged(volumes=()))),
    # the policy
    of("nobody says it", "policy", R.CLAIM_KEPT, lambda: with_claim(found(claim=claim(notes=())))),
    of("the volume is stricter", "policy", R.POLICY_CONFLICT, lambda: with_claim(found(volume=volume(policy="Block")))),
    of("a wrong word", "policy", R.POLICY_CONFLICT, lambda: with_claim(found(volume=volume(policy="Reprovisions")))),
    of(
        "said of reboots alone",
        "policy",
        R.CLAIM_KEPT,
        lambda: with_claim(found(claim=claim(notes=((names.DRAIN_POLICY_REBOOT, "Reprovision"),)))),
    ),
    of("its class, which may say something, is gone", "policy", R.NOT_KNOWN, lambda: mine(classes={})),
    # marks
    of("a mark that is garbage", "marks", R.CLAIM_KEPT, lambda: with_claim(noted(mark="n1"))),
    of("G1 the mark of a former machine", "marks", R.CLAIM_KEPT, lambda: with_claim(noted(mark="n1/uid-former"))),
    of("the mark of another node", "marks", R.CLAIM_KEPT, lambda: with_claim(noted(mark="n2/uid-n2"))),
    of("it was lost with a node", "marks", R.CLAIM_KEPT, lambda: with_claim(noted(lost="n9/uid-n9"))),
    of("no number of peers", "marks", R.CLAIM_KEPT, lambda: with_claim(noted(peers="0"))),
    of("digits of another kind", "marks", R.CLAIM_KEPT, lambda: with_claim(noted(peers="٣"))),
    of("a word for deletion", "marks", R.CLAIM_KEPT, lambda: with_claim(noted(deletion="yes"))),
    # who makes it again
    of("F2 no template", "made_again", R.CLAIM_KEPT, lambda: with_set(wishes=())),
    of("no StatefulSet", "made_again", R.CLAIM_KEPT, lambda: mine(workload=None)),
    of("another of its name", "made_again", R.CLAIM_KEPT, lambda: with_set(uid="uid-new")),
    of("the set is being deleted", "made_again", R.CLAIM_KEPT, lambda: with_set(deleting=True)),
    of("scaled to nothing", "made_again", R.CLAIM_KEPT, lambda: with_set(replicas=0)),
    of("the ordinals begin later", "made_again", R.CLAIM_KEPT, lambda: with_set(start=1)),
    of("whenScaled: Delete has given the claim to the pod", "made_again", R.CLAIM_KEPT, lambda: with_claim(found(of_pod=True))),
    of(
        "the pod is another set's",
        "made_again",
        R.CLAIM_KEPT,
        lambda: with_pods(replica(0, owner=samples.owner(name="other")), replica(1), replica(2)),
    ),
    of("a term that is not understood", "made_again", R.NO_NODE_FITS, lambda: crowded(apart(namespaces=["a"]), "n4")),
    of("a spread that is not understood", "made_again", R.NO_NODE_FITS, lambda: crowded(even(minDomains=4), "n4")),
    # the other replicas
    of("F2 a replica is not ready", "replicas", R.REPLICA_NOT_READY, lambda: with_pods(replica(0), replica(1), replica(2, ready=False))),
    of("a replica is missing", "replicas", R.REPLICA_NOT_READY, lambda: with_pods(replica(0), replica(1))),
    of("a replica ends", "replicas", R.REPLICA_NOT_READY, lambda: with_pods(replica(0), replica(1), replica(2, deleting_since="x"))),
    of("a replica has ended", "replicas", R.REPLICA_NOT_READY, lambda: with_pods(replica(0), replica(1), replica(2, phase="Failed"))),
    of("a replica has no node", "replicas", R.REPLICA_NOT_READY, lambda: with_pods(replica(0), replica(1), replica(2, node=""))),
    of(
        "a pod of the name is another's",
        "replicas",
        R.REPLICA_NOT_READY,
        lambda: with_pods(replica(0), replica(1), replica(2, owner=samples.owner(name="x"))),
    ),
    of("a replica is on this node", "replicas", R.REPLICA_NOT_READY, lambda: with_pods(replica(0), replica(1), replica(2, node="n1"))),
    of("a replica without a claim", "replicas", R.REPLICA_NOT_READY, lambda: with_pods(replica(0), replica(1), replica(2, claims=()))),
    of(
        "a replica with this very claim",
        "replicas",
        R.REPLICA_NOT_READY,
        lambda: with_pods(replica(0), replica(1), replica(2, claims=("data-db-2", "data-db-0"))),
    ),
    of("a single replica", "replicas", R.REPLICA_NOT_READY, lambda: with_pods(replica(0), workload=stateful_set(replicas=1))),
    of(
        "a single replica with a word for one peer",
        "replicas",
        R.REPLICA_NOT_READY,
        lambda: with_pods(replica(0), workload=stateful_set(replicas=1), claims={"data-db-0": noted(peers="1")}),
    ),
    of(
        "fewer than were asked for",
        "replicas",
        R.REPLICA_NOT_READY,
        lambda: with_pods(replica(0), replica(1, ready=False), replica(2, ready=False), claims={"data-db-0": noted(peers="1")}),
    ),
    of(
        "the Lease was another node's, so that all peers count",
        "replicas",
        R.REPLICA_NOT_READY,
        lambda: view(facts(replica(0), replica(1), replica(2, ready=False), claims={"data-db-0": noted(peers="1")}), all_peers=True),
    ),
    of("one is Ready since a moment", "in_sync", R.REPLICA_NOT_IN_SYNC, lambda: ready_since("2026-01-01T00:00:01Z")),
    of("nobody knows since when one is Ready", "in_sync", R.REPLICA_NOT_IN_SYNC, lambda: ready_since("")),
    of("one lacks the condition that its owner names", "in_sync", R.REPLICA_NOT_IN_SYNC, lambda: with_set(in_sync="InSync")),
    of("a change that its controller has not seen", "not_rolling", R.REPLICA_NOT_READY, lambda: with_set(observed=False)),
    of("no revision", "not_rolling", R.REPLICA_NOT_READY, lambda: with_set(revision="")),
    of(
        "a replica is of an old revision",
        "not_rolling",
        R.REPLICA_NOT_READY,
        lambda: with_pods(replica(0), replica(1), replica(2, labels=LABELS | {names.POD_REVISION: "db-0"})),
    ),
    # where it lies
    of("two affinities", "on_this_node_alone", R.CLAIM_KEPT, lambda: with_claim(found(volume=volume(affinity=EVERYWHERE)))),
    of("no affinity", "on_this_node_alone", R.CLAIM_KEPT, lambda: with_claim(found(volume=volume(affinity=None)))),
    of("another node's affinity", "on_this_node_alone", R.CLAIM_KEPT, lambda: with_claim(found(volume=volume(affinity=EVERYWHERE[1:])))),
    of("made for another node", "on_this_node_alone", R.CLAIM_KEPT, lambda: with_claim(found(claim=claim(selected_node="n2")))),
    of("bound by hand", "on_this_node_alone", R.CLAIM_KEPT, lambda: with_claim(found(claim=claim(selected_node="")))),
    of("asked of nobody", "on_this_node_alone", R.CLAIM_KEPT, lambda: with_claim(found(claim=claim(provisioner="")))),
    # where it can go
    of("F2 no room", "place", R.NO_NODE_FITS, lambda: view(snapshot=judged(gib=5))),
    of("no other node", "place", R.NO_NODE_FITS, lambda: view(snapshot=judged(others=()))),
    of("where there is room was not looked at", "place", R.NO_NODE_FITS, lambda: view(snapshot=judged(capacities=None))),
    of("a larger volume than there was", "place", R.NO_NODE_FITS, lambda: asking(**LARGE)),
    of(
        "a class of which nothing is published",
        "place",
        R.NO_NODE_FITS,
        lambda: asking(None, [samples.class_("big")], storageClassName="big"),
    ),
    of("a class that is gone", "place", R.NO_NODE_FITS, lambda: asking(storageClassName="gone")),
    of("no class and no default", "place", R.NO_NODE_FITS, lambda: asking(storageClassName=None)),
    of("a selector", "place", R.NO_NODE_FITS, lambda: asking(selector={"matchLabels": {"a": "b"}})),
    of("a volume by its name", "place", R.NO_NODE_FITS, lambda: asking(volumeName="pv-9")),
    of("F2 three that may not share a node need a fourth", "place", R.NO_NODE_FITS, lambda: crowded(apart())),
    of("nor share it by their spread", "place", R.NO_NODE_FITS, lambda: crowded(even())),
    of("another claim of this driver stays here", "place", R.NO_NODE_FITS, lambda: beside(found(claim=claim("logs")))),
    of("another claim of the pod cannot be found", "place", R.NO_NODE_FITS, lambda: beside(None)),
    of("a volume of another driver keeps the pod", "place", R.NO_NODE_FITS, lambda: beside(of_another_driver())),
    of("a pod without a node has its ephemeral volume here", "place", R.NO_NODE_FITS, own_scratch),
    of("nor is one of another driver reached", "place", R.NO_NODE_FITS, lambda: own_scratch(driver="other")),
    of("nothing keeps pods off", "kept_off", R.WOULD_COME_BACK, lambda: view(snapshot=judged(node=samples.node()))),
    of("the pod tolerates it", "kept_off", R.WOULD_COME_BACK, lambda: with_pods(replica(0, tolerations=TOLERANT), replica(1), replica(2))),
    of(
        "its template tolerates it",
        "kept_off",
        R.WOULD_COME_BACK,
        lambda: mine(workload=stateful_set(pod={"tolerations": [ANYWHERE]})),
    ),
    of("its template names a node", "kept_off", R.WOULD_COME_BACK, lambda: mine(workload=stateful_set(pod={"nodeName": "n1"}))),
    # who minds
    of("a finalizer", "finalizers", R.CLAIM_KEPT, lambda: with_claim(found(finalizers=(names.CLAIM_PROTECTION, "example.com/backup")))),
    of("a clone is made of it", "finalizers", R.CLAIM_KEPT, lambda: with_claim(found(finalizers=(names.CLONE_FINALIZER,)))),
    of("a snapshot", "snapshots", R.SNAPSHOT_ON_NODE, lambda: mine(contents=(samples.content(),))),
    of("a snapshot that names no node", "snapshots", R.SNAPSHOT_ON_NODE, lambda: mine(contents=(samples.content(managed_by=""),))),
    of(
        "another pod has the claim",
        "nobody_else",
        R.CLAIM_KEPT,
        lambda: with_pods(replica(0), replica(1), replica(2), samples.pod("job", "data-db-0", owner=None)),
    ),
    of(
        "a pod on another node has the claim",
        "nobody_else",
        R.CLAIM_KEPT,
        lambda: with_pods(replica(0), replica(1), replica(2), samples.pod("job", "data-db-0", owner=None, node="n2")),
    ),
    of(
        "an ended pod has the claim",
        "nobody_else",
        R.CLAIM_KEPT,
        lambda: with_pods(replica(0), replica(1), replica(2), samples.pod("job", "data-db-0", phase="Failed")),
    ),
    of("another pod leaves", "nobody_leaves", R.POD_TERMINATING, lambda: mine(leaving=("apps/web-0",))),
    of("F2 B7 the budget", "budget", R.PDB_BLOCKED, lambda: mine(budgets=(samples.budget(allowed=0),))),
    of("two budgets", "budget", R.PDB_BLOCKED, lambda: mine(budgets=(samples.budget("a"), samples.budget("b")))),
    of("a budget that is not counted", "budget", R.PDB_BLOCKED, lambda: mine(budgets=(samples.budget(observed=False),))),
    of("several nodes are emptied and there is no budget", "budget", R.PDB_BLOCKED, lambda: view(settings=SEVERAL)),
]


@pytest.mark.parametrize(("scene", "lock", "reason"), SHUT)
def test_drain_F2_each_lock_is_shut_by_one_thing_and_says_why(scene: Scene, lock: str, reason: Reason) -> None:
    assert refused(scene()) == (lock, reason)
    hold = shut(scene())
    assert hold is not None
    assert (hold.reason, hold.pod, bool(hold.why)) == (reason, "apps/db-0", True)


GONE = (replica(1), replica(2))
OPEN: dict[str, Scene] = {
    "nothing is wrong": view,
    "all are Ready for the pause": lambda: ready_since("2026-01-01T00:00:00Z"),
    "no pause is asked for": lambda: replace(ready_since(""), settings=SETTINGS),
    "fewer peers are enough": lambda: with_pods(replica(0), replica(1), replica(2, ready=False), claims={"data-db-0": noted(peers="1")}),
    "more peers than there are": lambda: with_claim(noted(peers="9")),
    "somebody else makes the claim again": lambda: mine(workload=stateful_set(wishes=()), claims={"data-db-0": noted(deletion="true")}),
    "the policy of the class": lambda: mine(
        claims={"data-db-0": found(claim=claim(notes=()))}, classes={CLASS: samples.class_(policy="Reprovision")}
    ),
    "the policy of the namespace": lambda: mine(claims={"data-db-0": found(claim=claim(notes=()))}, namespace=samples.notes("Reprovision")),
    "our own mark": lambda: with_claim(noted(mark="n1/uid-n1")),
    "an acknowledged snapshot": lambda: mine(contents=(samples.content(ack="me"),)),
    "a snapshot of another volume": lambda: mine(contents=(samples.content(source_handle="other"),)),
    "the pod itself leaves": lambda: mine(leaving=("apps/db-0",)),
    "its pod is gone, so the budget was asked": lambda: with_pods(*GONE, budgets=(samples.budget(allowed=0),)),
    "nor is a budget needed then": lambda: view(facts(*GONE), settings=SEVERAL),
    "several nodes are emptied and a budget allows it": lambda: view(facts(budgets=(samples.budget(),)), settings=SEVERAL),
    "a pod that waits for a node has the claim": lambda: with_pods(
        replica(0), replica(1), replica(2), samples.pod("job", "data-db-0", node="")
    ),
    "an ephemeral claim goes with its pod": lambda: beside(None, "db-0-x", ephemeral=("db-0-x",)),
    "an ephemeral claim of a former pod of its name": lambda: own_scratch(of="uid-former"),
    "an ephemeral claim that goes": lambda: own_scratch(deleting=True),
    "an ephemeral volume that is not there yet": lambda: own_scratch(there=False),
    "an ephemeral volume that every node reaches": lambda: own_scratch(driver="other", affinity=None),
    "a volume of another driver that goes along": lambda: beside(of_another_driver(affinity=None)),
    "a claim that was deleted for it already": lambda: replace(beside(None), deleted=frozenset({"logs"})),
    "room for a larger volume": lambda: asking({"gib": 300}, **LARGE),
    "the class of the template": lambda: asking(
        {"capacities": (samples.record("n4", of="big"),)}, [samples.class_("big")], storageClassName="big"
    ),
    "a class of another driver needs no room here": lambda: asking(
        {"capacities": ()}, [samples.class_("net", provisioner="net.example.com")], storageClassName="net"
    ),
    "the default class": lambda: replace(
        asking(storageClassName=None), facts=replace(asking(storageClassName=None).facts, default_class=CLASS)
    ),
    "a fourth node": lambda: crowded(apart(), "n2", "n3", "n4"),
    "a fourth node for an even spread": lambda: crowded(even(), "n2", "n3", "n4"),
    "a wish to be apart": lambda: crowded(apart(rule="preferredDuringSchedulingIgnoredDuringExecution")),
    "apart from others": lambda: crowded(apart(selector={"matchLabels": {"app": "web"}})),
    "apart from nobody": lambda: crowded(apart(selector=None)),
    "a label that no node has": lambda: crowded(apart("example.com/rack")),
    "a wish for an even spread": lambda: crowded(even(whenUnsatisfiable="ScheduleAnyway")),
    "a spread with room": lambda: crowded(even(maxSkew=2)),
    "a spread of nobody": lambda: crowded(even(labelSelector={})),
}


@pytest.mark.parametrize("scene", OPEN.values(), ids=OPEN.keys())
def test_what_shuts_no_lock(scene: Scene) -> None:
    assert refused(scene()) is None


def test_the_node_that_is_left_must_take_pods_and_have_room() -> None:
    roomy = crowded(apart(), "n2", "n3", "n4")
    full = replace(roomy.snapshot, capacities=tuple(samples.record(name, 1 if name == "n4" else 100) for name in ("n2", "n3", "n4")))
    cordoned = replace(roomy.snapshot, others=(*roomy.snapshot.others[:2], samples.node("n4", unschedulable=True)))
    unreached = replace(beside(of_another_driver(affinity=EVERYWHERE[1:])), snapshot=replace(full, others=full.others[1:]))
    for tight in (replace(roomy, snapshot=full), replace(roomy, snapshot=cordoned), unreached):
        assert refused(tight) == ("_place", Reason.NO_NODE_FITS)


def two_claims(second: Any) -> LocksView:
    both: Facts = facts(
        *(replica(number, claims=(f"data-db-{number}", f"logs-db-{number}")) for number in range(3)),
        workload=stateful_set(wishes=tuple(replace(stateful_set().wishes[0], name=name) for name in ("data", "logs"))),
        claims={"data-db-0": found(), "logs-db-0": second},
    )
    return view(both, judged(volumes=(volume(), volume("pv-1", "logs-db-0"))), target=target("data-db-0", "logs-db-0"))


def test_of_two_claims_each_has_to_pass() -> None:
    logs = found(claim=claim("logs-db-0", volume_name="pv-1"), volume=volume("pv-1", "logs-db-0"))
    assert refused(two_claims(logs)) is None
    assert refused(replace(two_claims(logs), snapshot=replace(two_claims(logs).snapshot, capacities=(samples.record("n4", 15),)))) == (
        "_place",
        Reason.NO_NODE_FITS,
    )
    ignored = replace(logs, claim=samples.claim("logs-db-0", policy="Ignore", volume_name="pv-1"))
    assert refused(two_claims(ignored)) == ("_policy", Reason.CLAIM_KEPT)
