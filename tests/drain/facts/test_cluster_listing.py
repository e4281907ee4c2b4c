"""What is listed for a judgement from outside, what of it is kept, and what becomes of it when something cannot be read."""

import pytest

from sidecar.drain.facts.assembly import assemble
from sidecar.drain.facts.listed_cluster import NodePicker
from sidecar.drain.facts.listed_node import ListedNode
from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.judgement.assess import assess
from sidecar.drain.vocabulary import Status
from sidecar.kube.errors import Forbidden, NotFound
from sidecar.model import names
from tests.harness.drain.listed_cluster import (
    DRIVER,
    OTHER,
    Json,
    Lists,
    claim,
    cluster,
    in_order,
    look,
    look_at_all,
    meta,
    node,
    ready,
    volume,
)


def looked(kube: Lists, everywhere: bool) -> ListedNode:
    """At n1 alone, or at all nodes."""
    return NodePicker(look_at_all(kube)).node("n1") if everywhere else look(kube)


def snapshot_of(listed: ListedNode, driver: str) -> Snapshot:
    return assemble(listed.facts_of(driver), now=listed.at)


def test_only_what_lies_on_this_node_and_nowhere_else_is_kept() -> None:
    kube = cluster()
    listed = look(kube)
    assert [volume.name for volume in listed.volumes] == ["pv-1", "pv-other"]
    assert [claim.name for claim in listed.claims] == ["a", "waits"]
    assert [pod.name for pod in listed.pods] == ["p1"]
    assert [content.name for content in listed.contents] == ["s1"]
    assert [other.name for other in listed.others] == ["n2", "n3"]
    assert listed.drivers == (DRIVER,)
    assert listed.all_drivers() == (DRIVER, OTHER)
    assert (listed.namespace_policies, listed.ignorance) == ({"default": ((names.DRAIN_POLICY, "Ignore"),)}, ())
    assert ("pods", "", "spec.nodeName=n1") in kube.asked


def test_a_snapshot_has_what_concerns_its_driver_and_nothing_else() -> None:
    snapshot = snapshot_of(look(cluster()), DRIVER)
    assert [volume.name for volume in snapshot.volumes] == ["pv-1"]
    assert [item.name for item in snapshot.in_flight] == ["waits"]
    assert set(snapshot.claims) == {"default/a"}
    assert snapshot.surroundings is not None and [record.name for record in snapshot.surroundings.capacities] == ["c1"]
    other = snapshot_of(look(cluster()), OTHER)
    assert [volume.name for volume in other.volumes] == ["pv-other"]
    assert (other.in_flight, other.contents, other.classes) == ((), (), {})
    assert other.surroundings is not None and other.surroundings.capacities == ()


def test_a_node_that_is_not_there_is_an_error() -> None:
    kube = cluster()
    kube.objects["nodes"] = [node("n2")]
    with pytest.raises(NotFound, match="n1"):
        look(kube)


def test_what_may_not_be_read_is_in_the_ignorance() -> None:
    for plural in ["persistentvolumes", "persistentvolumeclaims", "storageclasses", "pods", "csinodes", "namespaces"]:
        kube = cluster()
        kube.broken[plural] = Forbidden("not allowed", status=403)
        (line,) = look(kube).ignorance
        assert "not allowed" in line and plural.rstrip("s")[:9] in line


def test_a_cluster_without_snapshots_has_none() -> None:
    kube = cluster()
    kube.broken["volumesnapshotcontents"] = NotFound("no such resource", status=404)
    listed = look(kube)
    assert (listed.contents, listed.ignorance) == ((), ())
    kube.broken["volumesnapshotcontents"] = Forbidden("not allowed", status=403)
    assert look(kube).ignorance != ()


def test_a_verdict_can_do_without_knowing_where_volumes_could_go() -> None:
    kube = cluster()
    kube.broken["csistoragecapacities"] = Forbidden("not allowed", status=403)
    listed = look(kube)
    assert (listed.capacities, listed.ignorance) == (None, ())
    assert snapshot_of(listed, DRIVER).surroundings is None


def lost(name: str) -> Json:
    return claim(name, selected="n1", volume_name="pv-gone")


def test_a_claim_whose_volume_is_gone_leaves_nothing_unknown() -> None:
    """It says so for ever, and nobody could ever retire its node."""
    kube = cluster()
    kube.objects["persistentvolumeclaims"].append(lost("lost"))
    assert look(kube).ignorance == ()


def test_a_volume_that_was_created_after_the_list_leaves_something_unknown() -> None:
    for error in [None, Forbidden("no", status=403)]:
        kube = cluster()
        kube.objects["persistentvolumeclaims"].append(lost("late"))
        kube.later[("persistentvolumes", "pv-gone")] = error or volume("pv-gone", "n1", claim="late")
        (told,) = look(kube).ignorance
        assert "pv-gone" in told


def test_where_a_source_of_policies_cannot_be_read_nothing_blocks_by_default() -> None:
    for everywhere in [False, True]:
        for plural in ["namespaces", "storageclasses", "persistentvolumeclaims"]:
            kube = ready()
            kube.objects["persistentvolumeclaims"] = [claim("a", volume_name="pv-1")]
            kube.objects["volumesnapshotcontents"] = []
            kube.objects["namespaces"] = [{"metadata": meta("default")}]
            kube.objects["persistentvolumes"][0]["spec"]["storageClassName"] = "fast"
            assert assess(snapshot_of(looked(kube, everywhere), DRIVER)).retire.status is Status.FALSE
            kube.broken[plural] = Forbidden("not allowed", status=403)
            judged = assess(snapshot_of(looked(kube, everywhere), DRIVER))
            assert (judged.retire.status, judged.blockers) == (Status.UNKNOWN, ())


def test_one_set_of_lists_says_of_each_node_what_a_look_at_it_alone_says() -> None:
    kube = cluster()
    kube.objects["namespaces"].append({"metadata": meta("empty")})
    picker = NodePicker(look_at_all(kube))
    for name in ("n1", "n2", "n3"):
        alone, one_of_all = look(kube, name), picker.node(name)
        for driver in (DRIVER, OTHER):
            assert in_order(snapshot_of(alone, driver)) == in_order(snapshot_of(one_of_all, driver))


def test_many_nodes_cost_no_more_lists_than_one() -> None:
    kube = cluster()
    kube.objects["nodes"] += [node(f"m{number}") for number in range(50)]
    look_at_all(kube)
    lists = {plural for plural, name, _ in kube.asked if not name}
    pages = sum(-(-max(1, len(kube.objects.get(plural, ()))) // 2) for plural in lists)
    assert len(kube.asked) == pages


def test_what_is_attached_to_the_node_is_here_unless_its_driver_attaches_nothing() -> None:
    for everywhere in [False, True]:
        for required, here in [(None, True), (True, True), (False, False)]:
            kube = cluster()
            for other in kube.objects["nodes"]:
                other["status"] = ready().objects["nodes"][0]["status"]
            spec = {"source": {"persistentVolumeName": "pv-both"}, "nodeName": "n1", "attacher": DRIVER}
            kube.objects["volumeattachments"] = [{"metadata": meta("va-1"), "spec": spec}]
            kube.objects["csidrivers"] = [] if required is None else [{"metadata": meta(DRIVER), "spec": {"attachRequired": required}}]
            facts = looked(kube, everywhere).facts_of(DRIVER)
            assert (facts.attached == {"pv-both"}) is here
            assert ("pv-both" in {found.name for found in facts.volumes}) is here
