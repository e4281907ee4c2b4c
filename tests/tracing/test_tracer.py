"""Spans of claims and volumes: when one begins and ends, what belongs to it, and what it may cost."""

import json
import tracemalloc
from typing import Any

import pytest

from sidecar.model.objects import Claim
from sidecar.tracing import tracer as rules
from sidecar.tracing.open_span import MOST_CHILDREN, MOST_EVENTS
from sidecar.tracing.sampling import Sampler, Sampling
from sidecar.tracing.tracer import CLAIMS, VOLUMES, Tracer
from tests.harness import samples
from tests.harness.collector import Json, checked, values

UID = "0af76519-16cd-43dd-8448-eb211c80319c"
CREATE = "/csi.v1.Controller/CreateVolume"


class Bench:
    def __init__(
        self,
        *,
        sampler: Sampler | None = None,
        most_open: int = 100,
        most_held: int = rules.MOST_HELD,
        reads_parents: bool = True,
        claim: Claim | None = None,
    ) -> None:
        self.now, self.sent, self._ids = 100.0, list[Json](), 0
        self.tracer = Tracer(
            Sampling(sampler or Sampler()),
            put=lambda raw: self.sent.append(checked(json.loads(raw))),
            new_id=self._new_id,
            clock=lambda: self.now,
            wall=lambda: 1_700_000_000 + self.now,
            reads_parents=reads_parents,
            most_open=most_open,
            most_held=most_held,
        )
        held = claim or samples.claim(meta={"uid": UID})
        self.tracer.claim = lambda uid: held if uid == held.uid else None
        self.tracer.driver = lambda: "d"

    def _new_id(self) -> str:
        self._ids += 1
        return f"{self._ids:016x}"

    def look(
        self, *steps: Any, key: str = UID, kind: str = CLAIMS, ending: str = "settled", works: bool = True, queued: float = 0.0
    ) -> None:
        """Each step is a method's name and its arguments."""
        self.tracer.started(kind, key, queued)
        with self.tracer.within(kind, key, works=works):
            for method, *given in steps:
                getattr(self.tracer, method)(*given)
        self.tracer.finished(kind, key, ending)

    def roots(self) -> list[Json]:
        return [span for span in self.sent if span["kind"] == 1]


SUCCEEDED = ("recorded", UID, "fake-pvc", "Normal", "ProvisioningSucceeded", "Successfully provisioned volume v")
FAILED = ("recorded", UID, "fake-pvc", "Warning", "ProvisioningFailed", "no space")
CALL = ("called", CREATE, "OK", 0.5)


def test_it_begins_with_what_made_it_due_and_ends_when_nothing_is_left_to_be_done() -> None:
    bench = Bench()
    bench.look(ending="waits", works=False, queued=2.0)
    bench.now += 10
    bench.look(("throttled", 0.5), CALL, SUCCEEDED)
    (root,) = bench.roots()
    assert values(root)["csi_node_sidecar.throttled_seconds"] == 0.5
    assert int(root["endTimeUnixNano"]) - int(root["startTimeUnixNano"]) == 12_000_000_000
    assert int(root["startTimeUnixNano"]) == (1_700_000_000 + 98) * 10**9
    assert values(root)["csi_node_sidecar.looks"] == 2
    assert values(root)["csi_node_sidecar.queued_seconds"] == 2.0


def test_what_only_waits_or_belongs_to_others_is_not_told() -> None:
    """A node hears of every claim that has no node yet."""
    bench = Bench()
    for _ in range(3):
        bench.look(("decided", UID, "Wait", "its turn has not come"), ending="waits", works=False)
    bench.look(("decided", UID, "Ignore", "another node has it"), works=False)
    assert bench.sent == []
    assert bench.tracer._open == {}


@pytest.mark.parametrize(
    ("steps", "status"),
    [
        ([CALL, SUCCEEDED], {"code": 1}),
        ([CALL, FAILED], {"code": 2, "message": "ProvisioningFailed: no space"}),
        ([CALL, FAILED, SUCCEEDED], {"code": 1}),
        ([CALL], None),
    ],
)
def test_the_status_is_what_the_last_event_says(steps: list[Any], status: Json | None) -> None:
    bench = Bench()
    bench.look(*steps)
    assert bench.roots()[0].get("status") == status


@pytest.mark.parametrize("ending", ["crashed", "overdue"])
def test_a_look_that_breaks_fails(ending: str) -> None:
    bench = Bench()
    bench.look(ending=ending)
    bench.tracer.end_all()
    (root,) = bench.roots()
    assert root["status"]["code"] == 2 and ending in root["status"]["message"]


@pytest.mark.parametrize(
    ("step", "name", "error", "shown"),
    [
        (("called", CREATE, "OK", 0.5), "csi.v1.Controller/CreateVolume", None, ("rpc.grpc.status_code", 0)),
        (("called", CREATE, "ResourceExhausted", 0.5), "csi.v1.Controller/CreateVolume", "ResourceExhausted", ("rpc.grpc.status_code", 8)),
        (("requested", "create", "persistentvolumes", 201, 0.5), "create persistentvolumes", None, ("http.response.status_code", 201)),
        (("requested", "update", "persistentvolumeclaims", 409, 0.5), "update persistentvolumeclaims", "HTTP 409", ("rpc.system", None)),
        (("requested", "get", "secrets", 0, 0.5), "get secrets", "no answer", ("http.response.status_code", None)),
    ],
)
def test_a_call_or_a_request_is_a_child(step: Any, name: str, error: str | None, shown: tuple[str, Any]) -> None:
    bench = Bench()
    bench.look(step)
    child, root = bench.sent
    assert (child["name"], child["traceId"], child["parentSpanId"]) == (name, root["traceId"], root["spanId"])
    assert child.get("status") == (None if error is None else {"code": 2, "message": error})
    assert values(child).get(shown[0]) == shown[1]
    assert int(child["endTimeUnixNano"]) - int(child["startTimeUnixNano"]) == 500_000_000


def test_what_happens_outside_of_a_look_belongs_to_nobody() -> None:
    bench = Bench()
    bench.tracer.called(CREATE, "OK", 0.5)
    bench.tracer.requested("list", "persistentvolumes", 200, 0.5)
    bench.tracer.throttled(0.5)
    bench.tracer.recorded(UID, "n", "Normal", "r", "m")
    bench.tracer.decided(UID, "Create", "")
    assert bench.sent == [] and bench.tracer.ids({}) == {}


def test_one_claim_costs_so_many_spans_and_events_and_no_more() -> None:
    bench = Bench()
    events = [("decided", UID, "Wait", f"turn {number}") for number in range(1000)]
    bench.look(*[CALL] * 1000, *events, SUCCEEDED)
    assert len(bench.sent) == MOST_CHILDREN + 1
    (root,) = bench.roots()
    assert values(root)["csi_node_sidecar.spans_left_out"] == 1000 - MOST_CHILDREN
    assert len(root["events"]) == MOST_EVENTS
    assert len(root["events"]) + root["droppedEventsCount"] == 1001
    assert root["events"][0]["attributes"] and root["events"][-1]["name"] == "ProvisioningSucceeded"
    assert len(json.dumps(root)) < 128 * 2**10


def test_what_all_claims_together_hold_is_bounded() -> None:
    """However many fail, and however long and wide the reasons are."""
    bench = Bench(most_held=2**20)
    tracemalloc.start()
    for number in range(100):
        events = [("decided", f"u{number}", "Wait", f"{turn}{chr(0x1F600) * 2000}") for turn in range(40)]
        bench.look(*events, key=f"u{number}", ending="waits")
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 2 * 2**20
    assert bench.tracer._held <= 2**20
    bench.tracer.end_all()
    assert bench.tracer._held == 0


def test_what_finds_no_place_is_counted_and_costs_nothing() -> None:
    bench = Bench(most_open=4)  # of which one namespace has half
    for number in range(5):
        bench.tracer.started(CLAIMS, f"u{number}", 0.0)
    assert len(bench.tracer._open) == 2 and bench.tracer.not_traced == 3
    bench.look(CALL, key="u4", ending="waits")
    assert bench.sent == []
    bench.tracer.finished(CLAIMS, "u0", "settled")
    bench.look(CALL, key="u4")
    assert len(bench.sent) == 2


@pytest.mark.parametrize("kind", [CLAIMS, VOLUMES])
def test_a_tenant_with_any_number_of_open_claims_leaves_others_their_place(kind: str) -> None:
    bench = Bench(most_open=rules.MOST_OPEN)
    crowd = samples.claim(meta={"namespace": "crowd", "uid": UID}), samples.volume(spec={"claimRef": {"namespace": "crowd", "name": "c"}})
    mine = samples.claim(meta={"namespace": "mine", "uid": UID}), samples.volume(spec={"claimRef": {"namespace": "mine", "name": "c"}})
    bench.tracer.claim = lambda uid: (mine if uid == "mine" else crowd)[0]
    bench.tracer.volume = lambda name: (mine if name == "mine" else crowd)[1]
    for number in range(rules.MOST_OPEN):
        bench.tracer.started(kind, f"c{number}", 0.0)
    assert len(bench.tracer._open) == rules.MOST_OPEN // 2
    bench.tracer.started(kind, "mine", 0.0)
    assert (kind, "mine") in bench.tracer._open and bench.tracer.faults == 0


@pytest.mark.parametrize(("flags", "spans"), [("01", 2), ("00", 0)])
def test_a_parent_is_joined_and_may_decline(flags: str, spans: int) -> None:
    parent = f"00-{'a' * 32}-{'b' * 16}-{flags}"
    bench = Bench(claim=samples.claim(meta={"uid": UID}, annotations={"opentelemetry.io/traceparent": parent}))
    bench.look(CALL)
    assert len(bench.sent) == spans
    assert all(span["traceId"] == "a" * 32 for span in bench.sent)


def test_without_the_propagator_no_parent_is_read() -> None:
    parent = f"00-{'a' * 32}-{'b' * 16}-00"
    claim = samples.claim(meta={"uid": UID}, annotations={"opentelemetry.io/traceparent": parent})
    bench = Bench(claim=claim, reads_parents=False)
    bench.look(CALL)
    assert {span["traceId"] for span in bench.sent} == {UID.replace("-", "")}


def test_a_log_line_has_the_trace_of_the_claim_it_is_about() -> None:
    bench = Bench()
    other = "11111111-1111-4111-8111-111111111111"
    bench.tracer.started(CLAIMS, other, 0.0)
    bench.tracer.started(CLAIMS, UID, 0.0)
    with bench.tracer.within(CLAIMS, UID, works=True):
        assert bench.tracer.ids({})["trace_id"] == UID.replace("-", "")
        assert bench.tracer.ids({"uid": UID})["trace_id"] == UID.replace("-", "")
        assert bench.tracer.ids({"uid": other})["trace_id"] == other.replace("-", "")
        assert bench.tracer.ids({"uid": "somebody else's"}) == {}
    assert bench.tracer.ids({"uid": UID})["trace_flags"] == "01"
    assert bench.tracer.ids({}) == {}


def test_a_volume_that_goes_is_told_with_its_claim() -> None:
    bench = Bench()
    volume = samples.volume(meta={"uid": UID})
    bench.tracer.volume = lambda name: volume
    name = volume.name
    emptied = ("called", "/csi.v1.Controller/DeleteVolume", "OK", 0.1)
    bench.look(("decided", name, "Empty", "released"), emptied, key=name, kind=VOLUMES, ending="waits")
    bench.look(("decided", name, "Remove", ""), ("requested", "delete", "persistentvolumes", 200, 0.1), key=name, kind=VOLUMES)
    (root,) = bench.roots()
    assert (root["name"], root["status"]) == ("delete volume", {"code": 1})
    assert values(root)["k8s.persistentvolumeclaim.uid"] == "testid"


def test_a_fault_in_telling_is_none_of_what_is_told() -> None:
    bench = Bench()

    def broken(uid: str) -> Claim | None:
        raise RuntimeError

    bench.tracer.claim = broken
    bench.look(CALL, SUCCEEDED)
    assert bench.tracer.faults >= 1
    bench.tracer.started(CLAIMS, UID, 0.0)
    assert bench.tracer.ids({"uid": UID}) == {}
