"""Where volumes could go: who comes into question, what is free there, and what is missing."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.facts.snapshot import Snapshot, Surroundings
from sidecar.drain.judgement.assessment import Place
from sidecar.drain.judgement.free_space import Figures
from sidecar.drain.judgement.placement import places
from sidecar.drain.judgement.volumes import classify
from sidecar.model import names
from sidecar.model.nodes import Node, Pod, Toleration
from sidecar.model.objects import CapacityRecord, Class, Volume
from sidecar.model.topology import Requirement, Term, terms_of
from tests.harness.drain import samples
from tests.harness.drain.samples import GIB, KEY

N2, N3 = samples.node("n2"), samples.node("n3")


def found(
    *volumes: Volume,
    pods: Iterable[Pod] = (),
    nodes: Iterable[Node] = (N2, N3),
    capacities: Iterable[CapacityRecord] = (),
    classes: Iterable[Class] = (samples.class_(), samples.class_("slow")),
) -> tuple[Place, ...]:
    snapshot: Snapshot = samples.snapshot(volumes=volumes, pods=tuple(pods), classes=classes)
    around = Surroundings(tuple(nodes), tuple(capacities))
    return places(classify(snapshot, snapshot.pods), surroundings=around, classes=snapshot.classes)


def idle(number: int = 0, gib: float = 10, **changes: Any) -> Volume:
    return samples.volume(f"pv-{number}", f"data-{number}", gib=gib, policy="Reprovision", **changes)


def only(*volumes: Volume, **around: Any) -> Place:
    (place,) = found(*volumes, **around)
    return place


def test_only_what_may_go_is_placed() -> None:
    others = [samples.volume(f"pv-{policy}", f"data-{policy}", policy=policy) for policy in ("Ignore", "Block", "AllowIdle")]
    released = replace(idle(7), phase="Released")
    assert found(*others, released, idle(), capacities=[samples.record("n2")]) == (Place(("pv-0",), "n2", 0, ()),)


def test_the_largest_goes_first_and_the_first_node_with_free_space_takes_it() -> None:
    volumes = [idle(0, 30), idle(1, 60), idle(2, 40)]
    placed = found(*volumes, capacities=[samples.record("n2", 70), samples.record("n3", 70)])
    assert [(place.volumes, place.node) for place in placed] == [(("pv-0",), "n3"), (("pv-1",), "n2"), (("pv-2",), "n3")]


def test_nodes_that_do_not_come_into_question_say_why() -> None:
    for node, why in [
        (replace(N2, unschedulable=True), "cordoned"),
        (replace(N2, taints=(samples.taint("node.kubernetes.io/unschedulable"),)), "cordoned"),
        (replace(N2, ready="False"), "Ready=False"),
        (replace(N2, ready="Unknown"), "Ready=Unknown"),
        (replace(N2, deleting=True), "deleted"),
        (replace(N2, taints=(samples.taint("csi-node-sidecar.io/evacuate", "retire"),)), "csi-node-sidecar.io/evacuate=retire"),
        (replace(N2, taints=(samples.taint("karpenter.sh/disrupted"),)), "karpenter.sh/disrupted"),
        (replace(N2, annotations={names.DRAIN_INTENT: "retire"}), f"itself being drained (annotation {names.DRAIN_INTENT}='retire')"),
        (replace(N2, annotations={names.DRAIN_INTENT: f" \n{'x' * 50}"}), f"{names.DRAIN_INTENT}='{'x' * 40}')"),
        (replace(N2, taints=(samples.taint("dedicated", "gpu"),)), "dedicated=gpu:NoSchedule"),
        (replace(N2, labels={"zone": "a"}), "no CSIStorageCapacity is published"),
    ]:
        place = only(idle(), nodes=[node], capacities=[samples.record("n2")])
        ((name, said),) = place.excluded
        assert (place.node, place.shortfall, name) == ("", 0, "n2") and why in said


def test_a_node_that_somebody_forgot_after_its_reboot_is_not_taken_for_one_that_is_drained() -> None:
    notes = {names.DRAIN_INTENT: "reboot", names.of_driver("other.example.com", names.REBOOT_INTENT): "Spent"}
    assert only(idle(), nodes=[replace(N2, annotations=notes)], capacities=[samples.record("n2")]).node == "n2"
    retiring = replace(N2, annotations=notes | {names.DRAIN_INTENT: "retire"})
    assert only(idle(), nodes=[retiring], capacities=[samples.record("n2")]).node == ""


TAINTED = replace(N2, taints=(samples.taint("dedicated", "db"),))
LABELLED = replace(N2, labels={**N2.labels, "disk": "nvme"})
WANTS_NVME = (Term((Requirement("disk", "In", ("nvme",)),)),)


def by_name(*nodes: str) -> tuple[Term, ...]:
    return terms_of({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(nodes)}]}]})


def test_what_the_pod_asks_of_a_node() -> None:
    for pod, node, fits in [
        ({}, TAINTED, False),
        ({"tolerations": (Toleration("dedicated", "Equal", "db", ""),)}, TAINTED, True),
        ({"tolerations": (Toleration("", "Exists", "", "NoExecute"),)}, TAINTED, False),
        ({"node_selector": {"disk": "nvme"}}, N2, False),
        ({"node_selector": {"disk": "nvme"}}, LABELLED, True),
        ({"affinity": WANTS_NVME}, N2, False),
        ({"affinity": WANTS_NVME}, LABELLED, True),
        ({"affinity": (Term((), has_fields=True), *WANTS_NVME)}, LABELLED, True),
        ({"affinity": by_name("n2")}, N2, True),
        ({"affinity": by_name("n3")}, N2, False),
        ({"affinity": ()}, LABELLED, False),
    ]:
        place = only(idle(), pods=[samples.pod("db-0", "data-0", **pod)], nodes=[node], capacities=[samples.record("n2")])
        assert bool(place.node) is fits


def test_of_two_pods_that_share_a_volume_both_are_asked_and_all_their_volumes_go_together() -> None:
    pods = [samples.pod("a", "data-0", "data-1", tolerations=(Toleration("", "Exists", "", ""),)), samples.pod("b", "data-1", "data-2")]
    volumes = [idle(0), idle(1), idle(2)]
    capacities = [samples.record("n2", 1000), samples.record("n3", 30)]
    assert found(*volumes, pods=pods, nodes=[TAINTED, N3], capacities=capacities) == (Place(("pv-0", "pv-1", "pv-2"), "n3", 0, ()),)


def test_a_volume_that_stays_keeps_its_pod_and_the_pod_keeps_the_others() -> None:
    for policy, named in [
        ("Block", "Block"),
        ("AllowIdle", "AllowIdle (reboot) and Block (retire)"),
        ("Foo", "Block"),
        (None, "AllowIdle (reboot) and Block (retire)"),
        ("Ignore", ""),
        ("Migrate", ""),
    ]:
        pods = [samples.pod("db-0", "data-0", "data-1")]
        place = found(idle(0), samples.volume("pv-1", "data-1", policy=policy), pods=pods, capacities=[samples.record("n2")])[0]
        excluded = (("pv-1", f"its policy {named} keeps it here, and pod apps/db-0 with it"),) if named else ()
        assert (place.node, place.shortfall, place.excluded) == ("" if named else "n2", 0, excluded)


def test_what_is_published_has_to_be_for_the_class_and_the_node_and_enough() -> None:
    for changes, fits in [
        ({}, True),
        ({"maximum": 10 * GIB}, True),
        ({"maximum": 10 * GIB - 1}, False),
        ({"capacity": 10 * GIB}, True),
        ({"capacity": None}, False),
        ({"node_topology": None}, False),
        ({"node_topology": {KEY: "n9"}}, False),
        ({"node_topology": {KEY: "n2", "zone": ""}}, False),
        ({"class_name": "slow"}, False),
    ]:
        place = only(idle(), nodes=[N2], capacities=[samples.record("n2", **changes)])
        assert bool(place.node) is fits and place.shortfall == 0


def test_what_is_missing_is_counted_where_it_is_least() -> None:
    place = only(idle(gib=100), capacities=[samples.record("n2", 10), samples.record("n3", 60)])
    assert place == Place(("pv-0",), "", 40 * GIB, ())


def test_a_volume_too_large_for_any_is_missing_no_bytes_and_each_node_says_so() -> None:
    place = only(idle(gib=50), capacities=[samples.record("n2", 100, maximum=GIB), samples.record("n3", 100, maximum=2 * GIB)])
    assert (place.node, place.shortfall, [name for name, _ in place.excluded]) == ("", 0, ["n2", "n3"])
    assert "maximumVolumeSize" in place.excluded[0][1]


def test_two_pools_of_a_segment_are_two_and_one_pool_of_two_classes_is_one() -> None:
    volumes = [idle(0, 40, class_name="local"), idle(1, 40, class_name="slow")]
    one = [samples.record("n2", 50, of=of) for of in ("local", "slow")]
    assert [bool(place.node) for place in found(*volumes, nodes=[N2], capacities=one)] == [True, False]
    two = [samples.record("n2", 50, of=of, pool=f"vg-{of}") for of in ("local", "slow")]
    assert [bool(place.node) for place in found(*volumes, nodes=[N2], capacities=two)] == [True, True]


def test_a_class_that_is_gone_or_allows_other_places_only_leaves_a_node_out() -> None:
    elsewhere = samples.class_(allowed=({KEY: ("n3",)},))
    capacities = [samples.record("n2"), samples.record("n3")]
    assert only(idle(), capacities=capacities, classes=[elsewhere]).node == "n3"
    assert "does not exist" in only(idle(), capacities=capacities, classes=[]).excluded[0][1]


@given(
    st.lists(st.integers(0, 12), max_size=12),
    st.lists(st.tuples(st.integers(0, 20), st.one_of(st.none(), st.integers(1, 12))), max_size=6),
)
def test_nothing_is_promised_that_is_not_there_and_nothing_is_refused_that_would_fit(
    sizes: list[int], figures: list[tuple[int, int | None]]
) -> None:
    nodes = [samples.node(f"m{number}") for number in range(len(figures))]
    capacities = [
        samples.record(f"m{number}", free, maximum=None if most is None else most * GIB) for number, (free, most) in enumerate(figures)
    ]
    volumes = [idle(number, size) for number, size in enumerate(sizes)]
    placed = found(*volumes, nodes=nodes, capacities=capacities)
    size_of = {volume.name: volume.size // GIB for volume in volumes}
    left = {f"m{number}": free for number, (free, _) in enumerate(figures)}
    for place in placed:
        if place.node:
            left[place.node] -= size_of[place.volumes[0]]
    assert all(free >= 0 for free in left.values())
    most_of = {f"m{number}": most for number, (_, most) in enumerate(figures)}
    unplaced = {place: size_of[place.volumes[0]] for place in placed if not place.node}
    possible = [size for size in unplaced.values() if any(most is None or size <= most for most in most_of.values())]
    for place, size in unplaced.items():
        eligible = [node for node, most in most_of.items() if most is None or max(possible, default=0) <= most]
        assert place.shortfall == (min(sum(possible) - left[node] for node in eligible) * GIB if size in possible else 0)
        assert (place.shortfall > 0) is (size in possible)


# --- Finding the first that has room, and what is published for the place a node is in ---


def test_what_is_published_for_a_node_its_zone_and_everywhere_is_found_by_its_labels() -> None:
    node = samples.node("n2", labels={samples.KEY: "n2", "zone": "a"})
    figures = Figures(
        [
            samples.record("n2", 1),
            samples.record("n3", 2),
            samples.record("zone-a", 3, node_topology={"zone": "a"}),
            samples.record("both", 4, node_topology={"zone": "a", samples.KEY: "n2"}),
            samples.record("none", 5, node_topology={"zone": "a", "row": ""}),
            samples.record("all", 6, node_topology={}),
            samples.record("slow", 7, of="slow", node_topology={"zone": "a"}),
        ]
    )
    found = figures.of(node)
    assert sorted(figure.capacity // GIB for figure in found["local"]) == [1, 3, 4, 6]
    assert [figure.capacity // GIB for figure in found["slow"]] == [7]


def test_what_one_class_takes_is_gone_for_the_other() -> None:
    figures = Figures([samples.record("n2", 5, of="local"), samples.record("n2", 3, of="slow")])
    ((local,), (slow,)) = (figures.of(samples.node("n2"))[name] for name in ("local", "slow"))
    figures.give({local.pool: 4 * GIB})
    assert (figures.left(local), figures.left(slow)) == (GIB, 0)
