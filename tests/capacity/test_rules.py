"""Applied again and again, the rule ends in exactly one right object per eligible class."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sidecar.capacity.rules import Decision, Measure, Publish, Rest, Retry, Update, Withdraw, decide, is_managed, selector
from sidecar.capacity.view import CapacityView
from sidecar.csi.api import CapacityAnswer
from sidecar.csi.outcome import Unmeasured
from sidecar.model.objects import CapacityRecord, Owner
from sidecar.model.topology import Segment
from tests.harness import samples
from tests.harness.capacity import LABELS, POD, PUBLISHER, SEGMENT, record


def view(*records: CapacityRecord, answer: CapacityAnswer | Unmeasured | None = None, **changes: Any) -> CapacityView:
    base = CapacityView(100.0, PUBLISHER, SEGMENT, "fake-class", samples.class_(), records, answer)
    return replace(base, **changes)


def test_C2_the_object() -> None:
    decision = decide(view(answer=CapacityAnswer(2**30)))
    assert isinstance(decision, Publish)
    assert decision.body == {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"generateName": "csisc-", "labels": LABELS, "ownerReferences": [POD.as_json()]},
        "storageClassName": "fake-class",
        "nodeTopology": {"matchLabels": {samples.KEY: "foo"}},
        "capacity": "1Gi",
    }


def test_C4_immediate_classes_only_behind_their_flag() -> None:
    immediate = samples.class_(volumeBindingMode="Immediate")
    assert isinstance(decide(view(class_=immediate)), Rest)
    assert isinstance(decide(view(class_=immediate, publisher=replace(PUBLISHER, for_immediate=True))), Measure)
    assert isinstance(decide(view(class_=samples.class_(volumeBindingMode=None))), Measure)


def test_C5_an_equal_object_is_not_written_and_a_different_one_keeps_its_name() -> None:
    same = decide(view(record(), answer=CapacityAnswer(2**30)))
    assert same == Rest(160.0, same.why)
    other = decide(view(record(), answer=CapacityAnswer(5)))
    assert isinstance(other, Update)
    assert other.body["capacity"] == "5"
    assert {key: other.body["metadata"][key] for key in ("name", "uid", "resourceVersion", "namespace")} == {
        "name": "csisc-1",
        "uid": "uid-csisc-1",
        "resourceVersion": "5",
        "namespace": "ns",
    }


def test_C6_owners() -> None:
    added = decide(view(record(owners=()), answer=CapacityAnswer(2**30)))
    assert isinstance(added, Update) and added.body["metadata"]["ownerReferences"] == [POD.as_json()]
    other = Owner("v1", "Node", "foo", "node-uid")
    kept = decide(view(record(owners=(other,)), answer=CapacityAnswer(2**30)))
    assert isinstance(kept, Update) and kept.body["metadata"]["ownerReferences"] == [other.as_json(), POD.as_json()]
    controlling = replace(other, controller=True)
    changed = decide(view(record(owners=(controlling,)), answer=CapacityAnswer(2**30)))
    assert isinstance(changed, Update) and changed.body["metadata"]["ownerReferences"] == [POD.as_json()]
    blocking = replace(other, blocks=True)
    carried = decide(view(record(owners=(blocking,)), answer=CapacityAnswer(2**30)))
    assert isinstance(carried, Update) and carried.body["metadata"]["ownerReferences"] == [blocking.as_json(), POD.as_json()]
    demoted = decide(view(record(owners=(replace(POD, controller=False),)), answer=CapacityAnswer(2**30)))
    assert isinstance(demoted, Update) and demoted.body["metadata"]["ownerReferences"] == [POD.as_json()]
    nobody = replace(PUBLISHER, owner=None)
    assert isinstance(decide(view(record(owners=(other,)), answer=CapacityAnswer(2**30), publisher=nobody)), Rest)


def test_C7_objects_of_a_vanished_class_or_segment_go() -> None:
    assert isinstance(decide(view(record(), class_=None)), Withdraw)
    elsewhere = record(node_topology={samples.KEY: "bar"})
    assert decide(view(elsewhere)) == Withdraw(elsewhere, decide(view(elsewhere)).why)


def test_C7_one_that_will_not_go_keeps_nothing_else_from_being_done() -> None:
    stuck, other = record("csisc-0", node_topology={samples.KEY: "bar"}), record("csisc-1", node_topology=None)
    told = frozenset({stuck.uid})
    another = decide(view(stuck, other, leaving=told))
    assert isinstance(another, Withdraw) and another.record == other
    assert isinstance(decide(view(stuck, leaving=told)), Measure)
    assert isinstance(decide(view(stuck, answer=CapacityAnswer(5), leaving=told)), Publish)
    assert isinstance(decide(view(stuck, record(), answer=CapacityAnswer(5), leaving=told)), Update)
    assert isinstance(decide(view(stuck, record(), answer=CapacityAnswer(2**30), leaving=told)), Rest)


def test_C10_one_that_was_told_to_go_is_not_the_one_to_keep() -> None:
    told, other = record("csisc-0"), record("csisc-1")
    decision = decide(view(told, other, answer=CapacityAnswer(5), leaving=frozenset({told.uid})))
    assert isinstance(decision, Update) and decision.record == other


def test_one_that_is_being_deleted_is_neither_deleted_nor_the_one_to_keep() -> None:
    ghost, live = record("csisc-0", deleting=True), record("csisc-1")
    assert isinstance(decide(view(ghost, live, answer=CapacityAnswer(2**30))), Rest)
    changed = decide(view(ghost, live, answer=CapacityAnswer(5)))
    assert isinstance(changed, Update) and changed.record == live
    assert isinstance(decide(view(ghost, class_=None)), Rest)
    assert isinstance(decide(view(replace(ghost, node_topology=None))), Measure)
    assert isinstance(failing(300.0, replace(ghost, annotations=MARKED)), Retry)


def test_C10_of_two_equal_objects_one_goes() -> None:
    decision = decide(view(record("csisc-1"), record("csisc-2"), answer=CapacityAnswer(2**30)))
    assert isinstance(decision, Withdraw) and decision.record.name == "csisc-2"


def test_C10_a_duplicate_goes_only_when_the_one_that_stays_is_right() -> None:
    """Whoever made it may have given it a name before ours, and any figure."""
    decision = decide(view(record("csisc-0", capacity=7), record("csisc-1"), answer=CapacityAnswer(2**30)))
    assert isinstance(decision, Update) and decision.record.name == "csisc-0"


def test_an_object_just_created_is_waited_for_and_not_created_again() -> None:
    assert decide(view(settling_until=105.0)) == Rest(105.0, decide(view(settling_until=105.0)).why)
    assert isinstance(decide(view(settling_until=99.0)), Measure)


STALE = replace(PUBLISHER, stale_after=300.0)
NOW = 1_767_225_600.0
MARKED = {"csi-node-sidecar.io/stale-since": "2025-12-31T23:55:00Z"}


def failing(since: float, *records: CapacityRecord, **changes: Any) -> Decision:
    told = {"wall": NOW, "failing_since": NOW - since, "failing_for": since, "publisher": STALE}
    return decide(view(*records, answer=Unmeasured("no"), **{**told, **changes}))


def test_a_figure_that_was_not_renewed_for_long_is_withdrawn_where_that_is_wanted() -> None:
    assert isinstance(failing(299.0, record(annotations=MARKED | {"csi-node-sidecar.io/stale-since": "garbage"})), Retry)
    assert isinstance(failing(300.0, record()), Withdraw)
    assert isinstance(failing(1e9, record(), publisher=PUBLISHER), Update), "by default it is only marked"
    assert isinstance(failing(300.0), Retry), "there is nothing to withdraw"
    told = record(annotations=MARKED)
    assert isinstance(failing(300.0, told, leaving=frozenset({told.uid})), Retry), "once is enough"


def test_a_clock_that_jumps_neither_hastens_the_withdrawal_nor_puts_it_off() -> None:
    """From the first failure on it is counted by a clock that does not jump."""
    for jump in [-86_400.0, 86_400.0]:
        assert isinstance(failing(59.0, record(), wall=NOW + jump), Retry)
        assert isinstance(failing(60.0, record(), wall=NOW + jump), Update)
        own_mark = record(annotations={"csi-node-sidecar.io/stale-since": "2025-12-31T23:55:01Z"})
        assert isinstance(failing(298.0, own_mark, wall=NOW + jump, failing_since=NOW - 299.0), Retry)
        assert isinstance(failing(300.0, own_mark, wall=NOW + jump, failing_since=NOW - 299.0), Withdraw)


def test_a_put_returns_what_others_have_put_there() -> None:
    decision = decide(view(record(annotations={"a": "b"}, finalizers=("somebody/s",)), answer=CapacityAnswer(5)))
    assert isinstance(decision, Update)
    assert (decision.body["metadata"]["annotations"], decision.body["metadata"]["finalizers"]) == ({"a": "b"}, ["somebody/s"])


def test_C20_reserved_parameters_are_not_sent() -> None:
    decision = decide(view(class_=samples.class_(parameters={"pool": "fast", "csi.storage.k8s.io/fstype": "xfs"})))
    assert isinstance(decision, Measure) and decision.query.parameters == {"pool": "fast"}


def test_a_negative_answer_is_published_as_nothing_free() -> None:
    decision = decide(view(answer=CapacityAnswer(-1)))
    assert isinstance(decision, Publish) and decision.body["capacity"] == "0"
    assert isinstance(decide(view(record(capacity=0), answer=CapacityAnswer(-1))), Rest)


def test_topology_that_is_advertised_and_not_reported_publishes_nothing_and_says_so() -> None:
    """An object without a segment would speak for all nodes."""
    unplaced = view(segment=Segment(), has_topology=True)
    decision = decide(unplaced)
    assert isinstance(decision, Rest) and decision.until is None and "reports none for this node" in decision.why
    former = decide(replace(unplaced, records=(record(node_topology={}),)))
    assert isinstance(former, Withdraw) and former.why == decision.why


def test_a_topology_that_no_object_can_name_publishes_nothing_and_says_so() -> None:
    """Each write would be refused."""
    decision = decide(view(segment=Segment.of({"rack": "r" * 300}), has_topology=True))
    assert isinstance(decision, Rest) and decision.until is None
    assert "that no object can name, so nothing is published: 'rack' has the value" in decision.why


def test_C27_the_watch_is_limited_to_our_labels() -> None:
    assert selector(PUBLISHER) == f"csi.storage.k8s.io/drivername={samples.DRIVER},csi.storage.k8s.io/managed-by=external-provisioner-foo"
    assert is_managed(record(), PUBLISHER)
    assert not is_managed(record(labels={}), PUBLISHER)


records = st.lists(
    st.builds(
        record,
        st.sampled_from(["a", "b", "c", "d"]),
        capacity=st.one_of(st.none(), st.integers(0, 9)),
        maximum=st.one_of(st.none(), st.integers(0, 9)),
        owners=st.sampled_from([(), (POD,), (Owner("v1", "Node", "n", "u"),)]),
        node_topology=st.sampled_from([SEGMENT.labels(), {samples.KEY: "bar"}, None, {}]),
    ),
    max_size=5,
    unique_by=lambda item: item.name,
)


def apply(have: list[CapacityRecord], decision: Decision) -> list[CapacityRecord]:
    """What the API server would hold afterwards."""
    match decision:
        case Publish(body):
            return [*have, CapacityRecord.of({**body, "metadata": {**body["metadata"], "name": "new"}})]
        case Update(old, body):
            return [CapacityRecord.of(body) if item.name == old.name else item for item in have]
        case Withdraw(gone):
            return [item for item in have if item.name != gone.name]
        case _:
            return have


@given(have=records, available=st.integers(-5, 2**60), maximum=st.one_of(st.none(), st.integers(0, 2**60)), exists=st.booleans())
def test_it_ends_in_exactly_the_right_objects_and_then_rests(
    have: list[CapacityRecord], available: int, maximum: int | None, exists: bool
) -> None:
    answer = CapacityAnswer(available, maximum)
    class_ = samples.class_() if exists else None
    for _ in range(len(have) + 3):
        decision = decide(view(*have, answer=answer, class_=class_))
        have = apply(have, decision)
    assert isinstance(decide(view(*have, answer=answer, class_=class_)), Rest)
    assert [(item.capacity, item.maximum, item.node_topology) for item in have] == (
        [(max(available, 0), maximum, SEGMENT.labels())] if exists else []
    )
    assert all(POD in item.owners for item in have)


def test_C3_the_largest_volume_is_published_and_a_change_of_it_alone_is_an_update() -> None:
    published = decide(view(answer=CapacityAnswer(2**30, maximum=2**20)))
    assert isinstance(published, Publish) and published.body["maximumVolumeSize"] == "1Mi"
    changed = decide(view(record(maximum=2**20), answer=CapacityAnswer(2**30, maximum=2**21)))
    assert isinstance(changed, Update) and changed.body["maximumVolumeSize"] == "2Mi"
    dropped = decide(view(record(maximum=2**20), answer=CapacityAnswer(2**30)))
    assert isinstance(dropped, Update) and "maximumVolumeSize" not in dropped.body
