"""Which sidecar looks after the gate of a node whose own one has stopped, when it opens the gate, and how often it looks."""

from dataclasses import replace
from typing import Any

from sidecar.drain import leases
from sidecar.drain.evacuation.rules import Expiry
from sidecar.drain.facts.node_marks import NodePolicy, Signals, read
from sidecar.drain.gate import lease as gate_lease
from sidecar.drain.gate import takeover
from sidecar.drain.gate.hidden import known_volumes, seen_volumes
from sidecar.drain.gate.pacing import after_failures, pause, usual
from sidecar.drain.gate.takeover import (
    Confirm,
    GateFacts,
    Keep,
    LeaveAlone,
    LetGo,
    LookAfter,
    NeighbourView,
    Nothing,
    TakeOver,
    judge,
    override,
    responsible,
)
from sidecar.drain.judgement.assessment import Verdict
from sidecar.drain.leases import RENEWED_EVERY, Hold, Lease, LeaseView, NotWanted, Release, Renew, Take, decide, identity
from sidecar.drain.publish import report
from sidecar.drain.settings import Settings
from sidecar.drain.vocabulary import Reason, Status
from sidecar.kube.api import LEASES
from sidecar.model import names
from tests.harness.cluster_tools import new_cluster
from tests.harness.drain.judgements import blocked
from tests.harness.drain.samples import DRIVER, NOW, node, stamp, taint

ME = identity("uid-n2", DRIVER)
THEIRS = Lease(names.guard("uid-n1", DRIVER), "u", "7", identity("uid-n1", DRIVER), "n1", "uid-n1", NOW, 900.0)
GATE = ({"kind": "PodDisruptionBudget", "spec": {"minAvailable": 1}}, {"kind": "Deployment", "spec": {}})
PROVEN = Verdict(Status.TRUE, Reason.NOTHING_HERE, "no volume is on this node")


def view(**changes: Any) -> NeighbourView:
    base = NeighbourView(now=10_000.0, me=ME, driver=DRIVER, lease=THEIRS, unchanged_since=9_990.0, chance=0.5)
    return replace(base, **changes)


def facts(**changes: Any) -> GateFacts:
    base = GateFacts(
        lease=THEIRS, node=node(), gate=GATE, override="", draining=True, retire=PROVEN, holds_volumes=False, strays=(), proven_for=60.0
    )
    return replace(base, **changes)


def test_what_is_left_alone_says_from_when_on_it_may_be_taken() -> None:
    waits = responsible(view(unchanged_since=10_000.0))
    assert isinstance(waits, LeaveAlone) and waits.until is not None
    before, then = (responsible(view(unchanged_since=10_000.0, now=waits.until + step)) for step in (-0.1, 0.0))
    assert isinstance(before, LeaveAlone) and isinstance(then, TakeOver)
    assert responsible(view(lease=replace(THEIRS, name="mine"))) == LeaveAlone("this is not the lease of a gate", until=None)


def test_a_lease_is_taken_after_its_time_and_some_patience() -> None:
    for age, taken in [(900.0, False), (1019.9, False), (1020.0, True), (1e9, True)]:
        assert isinstance(responsible(view(unchanged_since=10_000.0 - age)), TakeOver) is taken


def test_neighbours_do_not_all_come_at_once() -> None:
    taken = [isinstance(responsible(view(unchanged_since=10_000.0 - 1020, chance=chance)), TakeOver) for chance in (0.0, 0.4, 0.6, 0.9)]
    assert taken == [True, True, False, False]


def test_the_time_of_the_renewal_does_not_count_because_clocks_differ() -> None:
    for renewed in (0.0, NOW * 2):
        assert isinstance(responsible(view(lease=replace(THEIRS, renewed=renewed))), LeaveAlone)


def test_a_duration_of_nothing_leaves_the_patience_as_it_is() -> None:
    for duration in [-5.0, 0.0]:
        assert isinstance(responsible(view(lease=replace(THEIRS, duration=duration))), LeaveAlone)


def test_the_holder_of_the_lease_looks_after_the_gate() -> None:
    assert responsible(view(lease=replace(THEIRS, holder=ME))) == LookAfter()


def test_another_lease_is_not_touched() -> None:
    for stranger in (replace(THEIRS, name="mine"), replace(THEIRS, node_uid="uid-n9"), replace(THEIRS, node_uid="")):
        assert isinstance(responsible(view(lease=stranger, unchanged_since=0.0)), LeaveAlone)
    assert isinstance(responsible(view(driver="other.example.com", unchanged_since=0.0)), LeaveAlone)


def test_what_is_taken_stays_the_lease_of_its_node() -> None:
    terms = takeover.terms(view(), namespace="storage")
    taken = decide(leases.LeaseView(NOW, terms, wanted=True, stored=THEIRS, takeable="it has run out"))
    assert isinstance(taken, Take)
    body = taken.body
    assert body["spec"]["holderIdentity"] == ME
    assert body["metadata"]["ownerReferences"][0]["uid"] == "uid-n1"
    assert (body["metadata"]["name"], body["metadata"]["resourceVersion"]) == (THEIRS.name, "7")


# --- what becomes of the gate -----------------------------------------------------------------------------------------


def test_a_gate_is_opened_on_proof() -> None:
    assert judge(facts()) == LetGo(GATE, "NoVolumes: no volume is on this node")


def test_a_gate_is_opened_where_people_have_said_so_whatever_lies_there() -> None:
    blocked = Verdict(Status.FALSE, Reason.LAST_COPY, "claim apps/data-0: LastCopy")
    decided = judge(facts(override="said by people", retire=blocked, strays=("pv-0",), draining=False, proven_for=0.0))
    assert decided == LetGo(GATE, "said by people")


def test_proof_has_to_hold_for_a_minute() -> None:
    """Between an eviction and the creation of the next pod a volume looks as if nobody used it."""
    for seconds, opened in [(0.0, False), (59.9, False), (60.0, True)]:
        decided = judge(facts(proven_for=seconds))
        assert isinstance(decided, LetGo if opened else Confirm) and "no volume is on this node" in decided.why


def test_where_volumes_are_proof_opens_nothing_before_a_drain_begins() -> None:
    for holds in [True, None]:
        kept = judge(facts(holds_volumes=holds, draining=False))
        assert isinstance(kept, Keep) and "opens when a drain begins" in kept.why
        assert isinstance(judge(facts(holds_volumes=holds, draining=True)), LetGo)
        assert isinstance(judge(facts(holds_volumes=False, draining=False)), LetGo)


def test_the_gate_of_a_node_that_is_gone_goes_by_itself() -> None:
    for gone in (None, node(uid="uid-of-another-machine")):
        judged = judge(facts(node=gone, override="ticket 7"))
        assert judged == Nothing("its node is gone, and what was made for it is deleted with it", by_itself=True)


def test_without_a_gate_nobody_needs_the_lease() -> None:
    assert judge(facts(gate=())) == Nothing("the gate is gone", by_itself=False)


def test_without_proof_the_gate_stays_and_says_why() -> None:
    for changes, why in [
        ({"retire": None}, "NotKnown: the node has not been judged from here yet"),
        ({"retire": Verdict(Status.UNKNOWN, Reason.SOURCE_OFFLINE, "silent")}, "SourceOffline: silent"),
        ({"retire": Verdict(Status.FALSE, Reason.LAST_COPY, "claim a")}, "LastCopy: claim a"),
        ({"orphans": ("pv-0",)}, "NotKnown: no living node reaches these volumes, and the node's own sidecar left no report"),
        ({"unseen": ("pv-0",)}, "NotKnown: the node's own sidecar alone knew that these volumes are there: pv-0"),
        ({"known": 2, "seen": 1}, "NotKnown: volumes that the node's own sidecar counted there: 2; that can be seen from another node: 1"),
        ({"strays": ("pv-0", "pv-1")}, "NotKnown: these volumes may lie on the node, and node labels do not say where: pv-0"),
    ]:
        kept = judge(facts(**changes))
        assert isinstance(kept, Keep) and kept.why.startswith(why)


# --- the deadline of a dead sidecar -----------------------------------------------------------------------------------

FLAGS = Settings("n2", DRIVER, "storage", "1", policy=NodePolicy.NO_SCHEDULE, allowed=3600.0, expiry=Expiry.OVERRIDE)


def evacuated(started_ago: float, *, label: str = "InProgress", **changes: Any) -> Signals:
    marks = {names.of_driver(DRIVER, names.EVACUATION_STARTED_AT): stamp(started_ago), **changes.pop("annotations", {})}
    labels = {names.of_driver(DRIVER, names.EVACUATION_STATE): label}
    return read(node(taints=(taint(names.EVACUATE_TAINT, "retire"),), annotations=marks, labels=labels, **changes), DRIVER, now=NOW)


def test_a_neighbour_lets_a_node_go_at_its_deadline_with_the_words_of_its_own_sidecar() -> None:
    late = override(evacuated(3600.0), FLAGS, clocks=(NOW,))
    assert late.startswith("--evacuation-expiry=Override, and the evacuation has taken longer than 3600 s")
    assert override(evacuated(3599.0), FLAGS, clocks=(NOW,)) == ""


def test_without_such_a_deadline_nobody_is_let_go() -> None:
    for flags in [{"expiry": Expiry.REPORT}, {"allowed": 0.0}, {"policy": NodePolicy.IGNORE}]:
        assert override(evacuated(1e6), replace(FLAGS, **flags), clocks=(NOW,)) == ""


def test_people_let_a_node_go_at_any_time() -> None:
    said = read(node(annotations={names.FORCE_DRAIN: "ticket 7"}), DRIVER, now=NOW)
    assert override(said, FLAGS, clocks=(NOW,)) == f"{names.FORCE_DRAIN}: ticket 7"


# --- What a stopped sidecar counted, and what can be seen of it ---


JUDGED = replace(blocked(), node_uid="uid-n0")
STORED = report.body(JUDGED, previous=None, agent="1")


def with_status(**changes: Any) -> dict[str, Any]:
    return STORED | {"status": STORED["status"] | changes}


def test_the_report_of_a_judgement_counts_what_that_judgement_counts() -> None:
    assert known_volumes(STORED, node_uid="uid-n0") == seen_volumes(JUDGED) > 0


def test_what_was_not_counted_is_not_known() -> None:
    for stored in [
        None,  # none
        {},  # empty
        with_status(nodeUID="uid-of-another-machine"),  # another machine
        with_status(verdicts={}),  # no verdict
        with_status(verdicts={"retire": {"status": "Unknown"}}),  # not judged
        with_status(counts={"classes": {"Idle": "many"}}),  # edited
    ]:
        assert known_volumes(stored, node_uid="uid-n0") is None


def test_a_sidecar_that_has_just_started_leaves_the_count_of_the_one_before() -> None:
    withdrawn = with_status(
        verdicts={"retire": {"status": "Unknown", "formerStatus": "True"}}, counts={"classes": {"Idle": 3, "Ephemeral": 2}}
    )
    assert known_volumes(withdrawn, node_uid="uid-n0") == 3


# --- How long a neighbour waits between two looks ---


def test_the_more_gates_there_are_the_less_often_they_are_listed() -> None:
    for gates, seconds in [(0, 60), (100, 60), (300, 180), (10_000, RENEWED_EVERY)]:
        assert usual(gates) == seconds


def test_a_pause_ends_when_something_is_due_and_is_never_very_short() -> None:
    for due, seconds in [
        ([], 70.0),  # nothing
        ([2_000.0], 70.0),  # later than usual
        ([1_030.0, 2_000.0], 30.0),  # sooner
        ([1_001.0], 5.0),  # very soon
        ([900.0], 5.0),  # overdue
    ]:
        assert pause(60.0, spread=70.0, due=due, now=1_000.0) == seconds


def test_where_very_many_leases_run_out_together_they_are_not_listed_every_few_seconds() -> None:
    assert pause(usual(1_000), spread=300.0, due=[1_000.0], now=1_000.0) == 25.0


def test_after_a_failure_the_next_look_comes_soon_and_after_many_as_usual() -> None:
    assert [after_failures(usual(0), number) for number in (1, 2, 3, 4, 5, 6, 10_000)] == [5, 10, 20, 40, 60, 60, 60]


# --- The lease of a node with a gate, as the node's own sidecar keeps it ---


SELF = identity("uid-n1", DRIVER)
MINE = Lease(names.guard("uid-n1", DRIVER), "u", "7", SELF, "n1", "uid-n1", NOW - 10, 900.0)


def own_view(**changes: Any) -> LeaseView:
    terms = gate_lease.terms("n1", "uid-n1", DRIVER, namespace="default", holder=SELF)
    return replace(LeaseView(NOW, terms, wanted=True, stored=None, own=True), **changes)


def test_a_gate_has_a_lease_and_the_api_server_takes_it() -> None:
    given = decide(own_view())
    assert isinstance(given, Take) and not given.replaces
    cluster = new_cluster()
    stored = Lease.of(cluster.create(LEASES, given.body, namespace="default").obj)
    assert stored.name == gate_lease.name("uid-n1", DRIVER)
    assert (stored.holder, stored.node, stored.node_uid, stored.renewed) == (SELF, "n1", "uid-n1", NOW)
    assert given.body["metadata"]["labels"] == {names.GUARDED_NODE: "uid-n1", names.GUARDED_FOR: DRIVER}
    later = decide(own_view(now=NOW + 300, stored=stored))
    assert isinstance(later, Renew)
    cluster.replace(LEASES, later.body, name=stored.name, namespace="default")


def test_the_lease_is_renewed_every_five_minutes_and_not_before() -> None:
    assert isinstance(decide(own_view(stored=MINE)), Hold)
    assert isinstance(decide(own_view(stored=replace(MINE, renewed=NOW - 299))), Hold)
    assert isinstance(decide(own_view(stored=replace(MINE, renewed=NOW - 300))), Renew)


def test_a_neighbour_that_holds_the_lease_gives_way() -> None:
    back = decide(own_view(stored=replace(MINE, holder=identity("uid-n2", DRIVER))))
    assert isinstance(back, Take) and back.replaces
    assert back.body["spec"]["holderIdentity"] == SELF
    assert back.body["metadata"]["resourceVersion"] == "7"


def test_without_a_gate_there_is_no_lease() -> None:
    assert decide(own_view(wanted=False, stored=MINE)) == Release(MINE.name, "u", "", "it is not needed any more")
    theirs = decide(own_view(wanted=False, stored=replace(MINE, holder="somebody")))
    assert isinstance(theirs, Take), "it is taken back first: nobody deletes what another one holds"
    assert isinstance(decide(own_view(wanted=False)), NotWanted)
