"""When a neighbour looks after the gate of a node whose own sidecar has stopped, and when it opens that gate."""

from dataclasses import replace
from typing import Any

from sidecar.drain.evacuation.rules import Expiry
from sidecar.drain.facts.node_marks import NodePolicy, Signals, read
from sidecar.drain.gate.takeover import (
    Confirm,
    GateFacts,
    Keep,
    LetGo,
    NeighbourView,
    TakeOver,
    judge,
    override,
    responsible,
)
from sidecar.drain.judgement.assessment import Verdict
from sidecar.drain.leases import Lease, identity
from sidecar.drain.settings import Settings
from sidecar.drain.vocabulary import Reason, Status
from sidecar.model import names
from tests.harness.drain.samples import DRIVER, NOW, node, stamp, taint

ME = identity("uid-n2", DRIVER)
THEIRS = Lease(names.guard("n1", "uid-n1", DRIVER), "u", "7", identity("uid-n1", DRIVER), "n1", "uid-n1", NOW, 900.0)
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


def test_a_lease_is_taken_after_its_time_and_some_patience() -> None:
    for age, taken in [(900.0, False), (1019.9, False), (1020.0, True), (1e9, True)]:
        assert isinstance(responsible(view(unchanged_since=10_000.0 - age)), TakeOver) is taken


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
