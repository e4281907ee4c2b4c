"""The locks before a replica's data, one by one: a scene in which all are open, and for each what alone shuts it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sidecar.drain.judgement.assessment import Place
from sidecar.drain.reprovision.facts import Facts
from sidecar.drain.reprovision.lock import LocksView, Name
from sidecar.drain.reprovision.locks import LOCKS, look, shut
from sidecar.drain.reprovision.workload import Workload
from sidecar.drain.vocabulary import Hindrance
from sidecar.model import names, timestamps
from sidecar.model.nodes import Toleration
from sidecar.model.objects import Owner
from sidecar.model.topology import Requirement, Term
from tests.harness.drain import samples
from tests.harness.drain.replica import LABELS, WORKLOAD, claim, facts, found, noted, replica, target, view, volume
from tests.harness.drain.samples import KEY

TOLERANT = (Toleration("", "Exists", "", ""),)
EVERYWHERE = (Term((Requirement(KEY, "In", ("n1",)),)), Term((Requirement(KEY, "In", ("n2",)),)))


def with_claim(each: Any) -> Facts:
    return facts(claims={"data-db-0": each})


def with_set(**changes: Any) -> Facts:
    return facts(workload=replace(WORKLOAD, **changes))


def waiting_with_its_own(*, of: str = replica(0).uid, deleting: bool = False, there: bool = True, **its_volume: Any) -> Facts:
    """db-0 waits for a node, with a claim that is made for it and goes with it."""
    waits = replica(0, node="", ready=False, claims=("data-db-0", "db-0-x"), ephemeral=("db-0-x",))
    own = samples.claim("db-0-x", owner=Owner("v1", "Pod", "db-0", of, controller=True), deleting=deleting)
    scratch = found(claim=own, of_pod=True, volume=volume("pv-1", "db-0-x", **its_volume) if there else None)
    return facts(waits, replica(1), replica(2), claims={"data-db-0": found(), "db-0-x": scratch})


PAUSE = {"now": timestamps.to_seconds("2026-01-01T00:30:00Z"), "pause": 1800.0}


def ready_since(when: str, **changes: Any) -> Facts:
    """db-1 since then, db-2 for long."""
    return facts(replica(0), replica(1, ready_since=when, **changes), replica(2, ready_since="2025-01-01T00:00:00Z"))


def judged(**changes: Any) -> LocksView:
    return view(snapshot=changes)


def refused(of: LocksView) -> tuple[str, Hindrance] | None:
    closed = [(lock.name, lock.refusal.hindrance) for lock in look(of) if lock.refusal]
    return closed[0] if closed else None


def test_drain_F1_all_locks_are_open_where_nothing_is_wrong() -> None:
    assert [str(lock) for lock in look(view()) if not lock.open] == []


N, H = Name, Hindrance
SHUT: list[tuple[str, Callable[[], LocksView], Name, Hindrance]] = [
    ("the flag", lambda: view(allowed=False), N.ALLOWED, H.REPROVISION_OFF),
    ("something could not be read", lambda: judged(ignorance=("pods could not be read",)), N.SURE, H.NOT_KNOWN),
    ("the driver has not listed", lambda: judged(not_listed="it was not asked"), N.SURE, H.NOT_KNOWN),
    ("the node is not ready", lambda: judged(node=samples.node(ready="False")), N.SURE, H.SOURCE_OFFLINE),
    ("the namespace ends", lambda: view(facts(namespace_ends=True)), N.SURE, H.NAMESPACE_ENDS),
    # the claims as they were judged
    ("F2 another uid", lambda: view(with_claim(found(claim=claim(uid="uid-new")))), N.SAME, H.CLAIM_CHANGED),
    ("the claim is gone", lambda: view(facts(claims={})), N.SAME, H.CLAIM_CHANGED),
    ("it is being deleted", lambda: view(with_claim(found(claim=claim(deleting=True)))), N.SAME, H.CLAIM_CHANGED),
    ("its volume is gone", lambda: view(with_claim(found(volume=None))), N.SAME, H.CLAIM_CHANGED),
    ("the volume is another claim's", lambda: view(with_claim(found(volume=volume(of="data-db-1")))), N.SAME, H.CLAIM_CHANGED),
    ("the volume is of another driver", lambda: view(with_claim(found(volume=volume(driver="other")))), N.SAME, H.CLAIM_CHANGED),
    ("the volume is not here", lambda: judged(volumes=()), N.SAME, H.CLAIM_CHANGED),
    # what the other replicas have by now
    ("one is Ready since a moment", lambda: view(ready_since("2026-01-01T00:00:01Z"), **PAUSE), N.IN_SYNC, H.REPLICA_NOT_IN_SYNC),
    ("nobody knows since when", lambda: view(ready_since(""), **PAUSE), N.IN_SYNC, H.REPLICA_NOT_IN_SYNC),
    ("one lacks the condition", lambda: view(with_set(in_sync="InSync")), N.IN_SYNC, H.REPLICA_NOT_IN_SYNC),
    # the policy
    ("nobody says it", lambda: view(with_claim(found(claim=claim(notes=())))), N.POLICY, H.POLICY_KEEPS),
    ("the volume is stricter", lambda: view(with_claim(found(volume=volume(policy="Block")))), N.POLICY, H.POLICY_KEEPS),
    ("a wrong word", lambda: view(with_claim(found(volume=volume(policy="Reprovisions")))), N.POLICY, H.POLICY_KEEPS),
    (
        "said of reboots alone",
        lambda: view(with_claim(found(claim=claim(notes=((names.DRAIN_POLICY_REBOOT, "Reprovision"),))))),
        N.POLICY,
        H.POLICY_KEEPS,
    ),
    (
        "another claim of the pod is Ignore",
        lambda: view(
            facts(
                replica(0, claims=("data-db-0", "logs")),
                replica(1),
                replica(2),
                claims={"data-db-0": found(), "logs": found(claim=samples.claim("logs", policy="Ignore"), volume=volume("pv-1", "logs"))},
            )
        ),
        N.POLICY,
        H.POLICY_KEEPS,
    ),
    (
        "another driver keeps the pod",
        lambda: view(
            facts(
                replica(0, claims=("data-db-0", "logs")),
                replica(1),
                replica(2),
                claims={"data-db-0": found(), "logs": found(claim=samples.claim("logs"), volume=volume("pv-1", "logs", driver="other"))},
            )
        ),
        N.POLICY,
        H.NO_NODE_FITS,
    ),
    ("a pod without a node has an ephemeral volume here", lambda: view(waiting_with_its_own()), N.POLICY, H.NO_NODE_FITS),
    ("one of another driver", lambda: view(waiting_with_its_own(driver="other")), N.POLICY, H.NO_NODE_FITS),
    # marks
    ("the mark is garbage", lambda: view(with_claim(noted(mark="n1"))), N.MARKS, H.MARK_NOT_UNDERSTOOD),
    ("G1 the mark of a former machine", lambda: view(with_claim(noted(mark="n1/uid-former"))), N.MARKS, H.MARK_NOT_UNDERSTOOD),
    ("the mark of another node", lambda: view(with_claim(noted(mark="n2/uid-n2"))), N.MARKS, H.MARK_NOT_UNDERSTOOD),
    ("it was lost with a node", lambda: view(with_claim(noted(lost="n9/uid-n9"))), N.MARKS, H.MARK_NOT_UNDERSTOOD),
    ("no number of peers", lambda: view(with_claim(noted(peers="0"))), N.MARKS, H.MARK_NOT_UNDERSTOOD),
    ("a word for deletion", lambda: view(with_claim(noted(deletion="yes"))), N.MARKS, H.MARK_NOT_UNDERSTOOD),
    # who makes it again
    ("F2 no template", lambda: view(with_set(templates=("logs",))), N.MADE_AGAIN, H.NOBODY_MAKES_IT_AGAIN),
    ("no StatefulSet", lambda: view(facts(workload=None)), N.MADE_AGAIN, H.NOBODY_MAKES_IT_AGAIN),
    ("another of its name", lambda: view(with_set(uid="uid-new")), N.MADE_AGAIN, H.NOBODY_MAKES_IT_AGAIN),
    ("it is being deleted with its set", lambda: view(with_set(deleting=True)), N.MADE_AGAIN, H.NOBODY_MAKES_IT_AGAIN),
    ("scaled to nothing", lambda: view(with_set(replicas=0)), N.MADE_AGAIN, H.REPLICA_CONDEMNED),
    ("the ordinals begin later", lambda: view(with_set(start=1)), N.MADE_AGAIN, H.REPLICA_CONDEMNED),
    ("whenScaled: Delete has given the claim to the pod", lambda: view(with_claim(found(of_pod=True))), N.MADE_AGAIN, H.REPLICA_CONDEMNED),
    (
        "the pod is another set's",
        lambda: view(facts(replica(0, owner=samples.owner(name="other")), replica(1), replica(2))),
        N.MADE_AGAIN,
        H.OWNER_NOT_SUPPORTED,
    ),
    # the other replicas
    ("F2 a replica is not ready", lambda: view(facts(replica(0), replica(1), replica(2, ready=False))), N.REPLICAS, H.REPLICA_NOT_READY),
    ("a replica is missing", lambda: view(facts(replica(0), replica(1))), N.REPLICAS, H.REPLICA_NOT_READY),
    (
        "a replica ends",
        lambda: view(facts(replica(0), replica(1), replica(2, deleting_since=samples.stamp()))),
        N.REPLICAS,
        H.REPLICA_NOT_READY,
    ),
    (
        "a pod of the name is another's",
        lambda: view(facts(replica(0), replica(1), replica(2, owner=samples.owner(name="x")))),
        N.REPLICAS,
        H.REPLICA_NOT_READY,
    ),
    ("a replica is here", lambda: view(facts(replica(0), replica(1), replica(2, node="n1"))), N.REPLICAS, H.REPLICA_NOT_APART),
    ("a replica without a claim", lambda: view(facts(replica(0), replica(1), replica(2, claims=()))), N.REPLICAS, H.REPLICA_NOT_APART),
    (
        "a replica with this claim",
        lambda: view(facts(replica(0), replica(1), replica(2, claims=("data-db-2", "data-db-0")))),
        N.REPLICAS,
        H.REPLICA_NOT_APART,
    ),
    ("a single replica", lambda: view(facts(replica(0), workload=replace(WORKLOAD, replicas=1))), N.REPLICAS, H.SINGLE_REPLICA),
    (
        "a single replica with a word for one peer",
        lambda: view(facts(replica(0), workload=replace(WORKLOAD, replicas=1), claims={"data-db-0": noted(peers="1")})),
        N.REPLICAS,
        H.SINGLE_REPLICA,
    ),
    (
        "fewer than were asked for",
        lambda: view(facts(replica(0), replica(1, ready=False), replica(2, ready=False), claims={"data-db-0": noted(peers="1")})),
        N.REPLICAS,
        H.REPLICA_NOT_READY,
    ),
    # a rollout
    ("a change that nobody has seen", lambda: view(with_set(observed=False)), N.NOT_ROLLING, H.WORKLOAD_ROLLING),
    ("no revision", lambda: view(with_set(revision="")), N.NOT_ROLLING, H.WORKLOAD_ROLLING),
    (
        "a replica is of an old revision",
        lambda: view(facts(replica(0), replica(1), replica(2, labels=LABELS | {names.POD_REVISION: "db-0"}))),
        N.NOT_ROLLING,
        H.WORKLOAD_ROLLING,
    ),
    # where it lies
    ("OR-ed affinities", lambda: view(with_claim(found(volume=volume(affinity=EVERYWHERE)))), N.ON_THIS_NODE, H.SEVERAL_PLACES),
    ("no affinity", lambda: view(with_claim(found(volume=volume(affinity=None)))), N.ON_THIS_NODE, H.SEVERAL_PLACES),
    ("another node's affinity", lambda: view(with_claim(found(volume=volume(affinity=EVERYWHERE[1:])))), N.ON_THIS_NODE, H.SEVERAL_PLACES),
    ("another node reaches it", lambda: judged(shared_with={"pv-0": ("n2",)}), N.ON_THIS_NODE, H.SEVERAL_PLACES),
    ("made elsewhere", lambda: view(with_claim(found(claim=claim(selected_node="n2")))), N.ON_THIS_NODE, H.SEVERAL_PLACES),
    ("renamed", lambda: judged(renamed=frozenset({"pv-0"})), N.ON_THIS_NODE, H.SEVERAL_PLACES),
    # where it can go
    ("F2 no room", lambda: view(places={"pv-0": Place(("pv-0",), "", 5, ())}), N.PLACE, H.NO_CAPACITY),
    ("no node", lambda: view(places={"pv-0": Place(("pv-0",), "", 0, (("n2", "it is cordoned"),))}), N.PLACE, H.NO_NODE_FITS),
    ("not looked at", lambda: view(places={}), N.PLACE, H.NO_NODE_FITS),
    ("nothing keeps pods off", lambda: judged(node=samples.node()), N.KEPT_OFF, H.WOULD_COME_BACK),
    ("the pod tolerates", lambda: view(facts(replica(0, tolerations=TOLERANT), replica(1), replica(2))), N.KEPT_OFF, H.WOULD_COME_BACK),
    (
        "its template tolerates",
        lambda: view(with_set(template=samples.pod("db", node="", tolerations=TOLERANT))),
        N.KEPT_OFF,
        H.WOULD_COME_BACK,
    ),
    ("its template names a node", lambda: view(with_set(template=samples.pod("db", node="n1"))), N.KEPT_OFF, H.WOULD_COME_BACK),
    # who minds
    (
        "a finalizer",
        lambda: view(with_claim(found(finalizers=(names.CLAIM_PROTECTION, "example.com/backup")))),
        N.FINALIZERS,
        H.FOREIGN_FINALIZER,
    ),
    ("a clone is made of it", lambda: view(with_claim(found(finalizers=(names.CLONE_FINALIZER,)))), N.FINALIZERS, H.FOREIGN_FINALIZER),
    ("a snapshot", lambda: judged(contents=(samples.content(),)), N.SNAPSHOTS, H.SNAPSHOT_ON_NODE),
    ("a snapshot without a place", lambda: judged(unplaced_contents=(samples.content(managed_by=""),)), N.SNAPSHOTS, H.SNAPSHOT_ON_NODE),
    (
        "another pod has the claim",
        lambda: view(facts(replica(0), replica(1), replica(2), samples.pod("job", "data-db-0", owner=None))),
        N.NOBODY_ELSE,
        H.CLAIM_IN_USE,
    ),
    (
        "an ended pod has the claim",
        lambda: view(facts(replica(0), replica(1), replica(2), samples.pod("job", "data-db-0", phase="Failed"))),
        N.NOBODY_ELSE,
        H.CLAIM_IN_USE,
    ),
    ("another pod leaves", lambda: view(facts(leaving=("apps/web-0",))), N.NOBODY_LEAVES, H.POD_LEAVING),
    (
        "another pod of the namespace has long been leaving",
        lambda: view(facts(leaving=("apps/a",)), slow=frozenset({"apps/a"})),
        N.NOBODY_LEAVES,
        H.POD_LEAVING,
    ),
    ("F2 B7 the budget", lambda: view(facts(budgets=(samples.budget(allowed=0),))), N.BUDGET, H.PDB_BLOCKED),
    ("two budgets", lambda: view(facts(budgets=(samples.budget("a"), samples.budget("b")))), N.BUDGET, H.TWO_BUDGETS),
    ("a budget that is not counted", lambda: view(facts(budgets=(samples.budget(observed=False),))), N.BUDGET, H.PDB_BLOCKED),
]


def test_drain_F2_each_lock_is_shut_by_one_thing_and_says_which() -> None:
    for name, scene, lock, hindrance in SHUT:
        assert refused(scene()) == (lock, hindrance), name
        refusal = shut(look(scene()))
        assert refusal is not None
        assert refusal.why


def test_every_lock_has_such_a_scene() -> None:
    assert {name for name, _ in LOCKS} == {lock for _, _, lock, _ in SHUT} == set(Name)


OPEN: list[tuple[str, Callable[[], LocksView]]] = [
    ("all are Ready for the pause", lambda: view(ready_since("2026-01-01T00:00:00Z"), **PAUSE)),
    (
        "fewer peers are enough",
        lambda: view(facts(replica(0), replica(1), replica(2, ready=False), claims={"data-db-0": noted(peers="1")})),
    ),
    ("more peers than there are", lambda: view(with_claim(noted(peers="9")))),
    (
        "somebody else makes the claim again",
        lambda: view(facts(workload=replace(WORKLOAD, templates=()), claims={"data-db-0": noted(deletion="true")})),
    ),
    (
        "the policy of the class",
        lambda: view(
            facts(claims={"data-db-0": found(claim=claim(notes=()))}, classes={samples.CLASS: samples.class_(policy="Reprovision")})
        ),
    ),
    (
        "the policy of the namespace",
        lambda: view(facts(claims={"data-db-0": found(claim=claim(notes=()))}, namespace=samples.notes("Reprovision"))),
    ),
    ("made here", lambda: view(with_claim(found(claim=claim(selected_node="n1"))))),
    ("our own mark", lambda: view(with_claim(noted(mark="n1/uid-n1")))),
    ("an acknowledged snapshot", lambda: judged(contents=(samples.content(ack="me"),))),
    ("a snapshot of another volume", lambda: judged(contents=(samples.content(source_handle="other"),))),
    ("a pod of another namespace has long been leaving", lambda: view(facts(leaving=("web/a",)), slow=frozenset({"web/a"}))),
    ("the pod itself leaves", lambda: view(facts(leaving=("apps/db-0",)))),
    ("its pod is gone, so the budget was asked", lambda: view(facts(replica(1), replica(2), budgets=(samples.budget(allowed=0),)))),
    (
        "a pod that waits for a node has the claim",
        lambda: view(facts(replica(0), replica(1), replica(2), samples.pod("job", "data-db-0", node=""))),
    ),
    (
        "an ephemeral claim goes with the pod",
        lambda: view(facts(replica(0, claims=("data-db-0", "db-0-x"), ephemeral=("db-0-x",)), replica(1), replica(2))),
    ),
    ("an ephemeral claim of a former pod of its name", lambda: view(waiting_with_its_own(of="uid-former"))),
    ("an ephemeral claim that goes", lambda: view(waiting_with_its_own(deleting=True))),
    ("an ephemeral volume that is not there yet", lambda: view(waiting_with_its_own(there=False))),
    ("an ephemeral volume that every node reaches", lambda: view(waiting_with_its_own(driver="other", affinity=None))),
    (
        "a volume of another driver that goes along",
        lambda: view(
            facts(
                replica(0, claims=("data-db-0", "logs")),
                replica(1),
                replica(2),
                claims={
                    "data-db-0": found(),
                    "logs": found(claim=samples.claim("logs"), volume=volume("pv-1", "logs", driver="other", affinity=None)),
                },
            )
        ),
    ),
]


def test_what_shuts_no_lock() -> None:
    for name, scene in OPEN:
        assert refused(scene()) is None, name


def test_a_lease_that_was_another_nodes_makes_all_others_count() -> None:
    fewer = facts(replica(0), replica(1), replica(2, ready=False), claims={"data-db-0": noted(peers="1")})
    assert refused(view(fewer, alone=True)) == (Name.REPLICAS, Hindrance.REPLICA_NOT_READY)


def test_fewer_replicas_are_not_enough_while_another_node_is_emptied() -> None:
    """The one that is away may be away by the other node's doing."""
    fewer = facts(replica(0), replica(1), replica(2, ready=False), claims={"data-db-0": noted(peers="1")})
    assert refused(view(replace(fewer, emptied=frozenset({"n9"})))) == (Name.REPLICAS, Hindrance.REPLICA_NOT_READY)


def test_of_two_claims_each_has_to_pass() -> None:
    both = {
        "data-db-0": found(),
        "logs-db-0": found(claim=samples.claim("logs-db-0", policy="Reprovision", volume_name="pv-1"), volume=volume("pv-1", "logs-db-0")),
    }
    of_both = replace(
        view(
            facts(workload=replace(WORKLOAD, templates=("data", "logs")), claims=both),
            snapshot={"volumes": (volume(), volume("pv-1", "logs-db-0"))},
        ),
        target=target("data-db-0", "logs-db-0"),
        places={"pv-0": Place(("pv-0", "pv-1"), "n4", 0, ()), "pv-1": Place(("pv-0", "pv-1"), "n4", 0, ())},
    )
    peers = facts(*(replica(number, claims=(f"data-db-{number}", f"logs-db-{number}")) for number in range(3)))
    of_both = replace(of_both, facts=replace(of_both.facts, pods=peers.pods))
    assert refused(of_both) is None
    ignored = {
        **both,
        "logs-db-0": found(claim=samples.claim("logs-db-0", policy="Ignore", volume_name="pv-1"), volume=volume("pv-1", "logs-db-0")),
    }
    assert refused(replace(of_both, facts=replace(of_both.facts, claims=ignored))) == (Name.POLICY, Hindrance.POLICY_KEEPS)


def test_what_a_statefulset_says_is_read_with_distrust() -> None:
    stored = {
        "metadata": {"name": "db", "uid": "u", "generation": 2},
        "spec": {"volumeClaimTemplates": [{"metadata": {"name": "data"}}, {}], "minReadySeconds": True, "ordinals": None},
        "status": {"observedGeneration": "2", "updateRevision": "db-1"},
    }
    read = Workload.of(stored)
    assert (read.replicas, read.start, read.ready_for, read.observed, read.revision) == (1, 0, 10.0, False, "db-1")
    assert read.claims_of("db-0") == {"data-db-0", "-db-0"}
    assert Workload.of({"metadata": {"name": "db"}}).wants("db-0")
    wide = replace(read, start=10, replicas=3)
    asked = ("db-0", "db-9", "db-10", "db-12", "db-13", "db-x", "db-010", "db-\u0661\u0660", "db", "other-10", "db-", "db-1000000000")
    assert [pod for pod in asked if wide.wants(pod)] == ["db-10", "db-12"]
    assert (wide.missing({"db-10"}), wide.missing({"db-10", "db-11", "db-12"}), replace(wide, replicas=-5).missing(())) == ("db-11", "", "")
