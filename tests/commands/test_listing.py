"""What is listed for a judgement from outside: what concerns a node, and what becomes of it when something cannot be read."""

from dataclasses import replace

import pytest

from sidecar.commands.explain.listing_io import Cluster
from sidecar.drain.assess import assess
from sidecar.drain.snapshot import Own, Snapshot
from sidecar.drain.words import Status
from sidecar.kube.errors import Forbidden, NotFound
from sidecar.model import names
from tests.harness.drain.listed_cluster import DRIVER, OTHER, Lists, claim, cluster, look, look_at_all, meta, node, pod, ready, volume


def looked(kube: Lists, everywhere: bool) -> Cluster:
    """At n1 alone, or at all nodes."""
    return look_at_all(kube) if everywhere else look(kube)


def snapshot(kube: Lists, driver: str = DRIVER, *, everywhere: bool = False, name: str = "n1") -> Snapshot:
    return (look_at_all(kube) if everywhere else look(kube, name)).snapshot(name, driver, Own())


def test_a_snapshot_has_what_concerns_its_node_and_driver_and_nothing_else() -> None:
    kube = cluster()
    kube.objects["pods"] += [pod("user", "a", node="n2"), pod("waits", "a"), pod("of-b", "b", node="n2")]
    found = snapshot(kube)
    assert [each.name for each in found.volumes] == ["pv-1"]
    assert {each.name for each in found.unplaced} == {"pv-zone", "pv-both"}
    assert [each.claim.name for each in found.in_flight] == ["waits"]
    assert (set(found.claims), {each.name for each in found.claimants}) == ({"default/a"}, {"user", "waits"})
    assert [each.name for each in found.contents] == ["s1"]
    assert found.ignorance == () and look(kube).drivers("n1") == (DRIVER, OTHER)
    other = snapshot(kube, OTHER)
    assert [each.name for each in other.volumes] == ["pv-other"] and (other.in_flight, other.contents, other.unplaced) == ((), (), ())


def test_one_set_of_lists_says_of_each_node_what_a_look_at_it_alone_says() -> None:
    kube = cluster()
    for name in ("n1", "n2", "n3"):
        for driver in (DRIVER, OTHER):
            alone, one_of_all = snapshot(kube, driver, name=name), snapshot(kube, driver, name=name, everywhere=True)
            assert replace(alone, others=()) == replace(one_of_all, others=())


def test_what_no_node_reaches_may_be_on_one_that_has_lost_a_label() -> None:
    for everywhere in (False, True):
        kube = ready()
        kube.objects["persistentvolumes"] = [volume("pv-rack", "r1", key="rack", claim="a")]
        kube.objects["volumesnapshotcontents"] = []
        kube.objects["nodes"][1]["metadata"]["labels"]["rack"] = "r2"
        assert [each.name for each in snapshot(kube, everywhere=everywhere).unplaced] == ["pv-rack"]
        assert snapshot(kube, everywhere=everywhere, name="n2").unplaced == (), "another value stands there"


def test_a_snapshot_of_which_nothing_says_where_it_is_may_be_on_every_node() -> None:
    for everywhere in (False, True):
        kube = ready()
        kube.objects["persistentvolumes"] = []
        for name in ("n1", "n2"):
            assert {each.name for each in snapshot(kube, everywhere=everywhere, name=name).unplaced} == {"s1", "s2"}


def test_a_driver_whose_volumes_whole_zones_reach_is_judged_only_where_somebody_names_it() -> None:
    for keys, known in ((["zone"], ()), (["kubernetes.io/hostname"], ("net.example",))):
        kube = cluster()
        of_driver = {"drivers": [{"name": "net.example", "topologyKeys": keys}]}
        kube.objects = {"nodes": kube.objects["nodes"], "csinodes": [{"metadata": meta(name), "spec": of_driver} for name in ("n1", "n2")]}
        kube.objects["persistentvolumes"] = [volume("pv-net", "z", key="zone", driver="net.example")]
        assert look_at_all(kube).drivers("n1") == known
        assert look_at_all(kube).drivers("n1", "net.example") == ("net.example",)
        says = {"type": names.condition("net.example", names.RETIRE_READY), "status": "True"}
        kube.objects["nodes"][1]["status"]["conditions"].append(says)
        assert look_at_all(kube).drivers("n2") == ("net.example",), "a sidecar judges it there"
        assert assess(snapshot(kube, "net.example")).retire.status is Status.UNKNOWN


def test_a_node_that_is_not_there_is_an_error() -> None:
    kube = cluster()
    kube.objects["nodes"] = [node("n2")]
    with pytest.raises(NotFound, match="n1"):
        look(kube)


def test_what_may_not_be_read_is_in_the_ignorance_and_is_no_yes() -> None:
    for plural in ("persistentvolumes", "persistentvolumeclaims", "storageclasses", "pods", "csinodes", "namespaces", "volumeattachments"):
        kube = ready()
        kube.broken[plural] = Forbidden("not allowed", status=403)
        (line,) = look(kube).ignorance
        assert "not allowed" in line and plural.rstrip("s")[:9] in line
        assert assess(snapshot(kube, "none.example")).retire.status is Status.UNKNOWN


def test_a_cluster_may_do_without_snapshots_and_reports() -> None:
    kube = cluster()
    for plural in ("volumesnapshotcontents", "nodedrainreports"):
        kube.broken[plural] = NotFound("no such resource", status=404)
    for everywhere in (False, True):
        found = looked(kube, everywhere)
        assert (found.ignorance, found.unread_reports) == ([], "")
    kube.broken["volumesnapshotcontents"] = kube.broken["nodedrainreports"] = Forbidden("not allowed", status=403)
    for everywhere in (False, True):
        found = looked(kube, everywhere)
        assert len(found.ignorance) == 1 and "not allowed" in found.unread_reports


def test_a_claim_whose_volume_is_gone_leaves_nothing_unknown() -> None:
    """It says so for ever, and nobody could ever retire its node."""
    kube = cluster()
    kube.objects["persistentvolumeclaims"].append(claim("lost", selected="n1", volume_name="pv-gone"))
    assert snapshot(kube).ignorance == ()


def test_where_a_source_of_policies_cannot_be_read_nothing_blocks_by_default() -> None:
    for everywhere in (False, True):
        for plural in ("namespaces", "storageclasses", "persistentvolumeclaims"):
            kube = ready()
            kube.objects["persistentvolumes"] = kube.objects["persistentvolumes"][:1]
            kube.objects["persistentvolumeclaims"] = [claim("a", volume_name="pv-1")]
            kube.objects["volumesnapshotcontents"] = []
            kube.objects["namespaces"] = [{"metadata": meta("default")}]
            kube.objects["persistentvolumes"][0]["spec"]["storageClassName"] = "fast"
            assert assess(snapshot(kube, everywhere=everywhere)).retire.status is Status.FALSE
            kube.broken[plural] = Forbidden("not allowed", status=403)
            judged = assess(snapshot(kube, everywhere=everywhere))
            assert (judged.retire.status, judged.blockers) == (Status.UNKNOWN, ())


def test_many_nodes_cost_no_more_lists_than_one() -> None:
    kube = cluster()
    kube.objects["nodes"] += [node(f"m{number}") for number in range(50)]
    look_at_all(kube)
    lists = {plural for plural, name, _ in kube.asked if not name}
    pages = sum(-(-max(1, len(kube.objects.get(plural, ()))) // 2) for plural in lists)
    assert len(kube.asked) == pages


def test_what_the_nodes_own_sidecar_says_is_read_beside() -> None:
    kube = cluster()
    type_ = names.condition(DRIVER, names.RETIRE_READY)
    kube.objects["nodes"][0]["status"] = {"conditions": [{"type": type_, "status": "True"}, {"type": "Ready", "status": "True"}]}
    report = names.drain_report("n1", DRIVER)
    kube.objects["nodedrainreports"] = [
        {"metadata": {"name": report}, "status": {"nodeUID": "u", "pods": ["long"]}},
        {"metadata": meta("odd")},
    ]
    for everywhere in (False, True):
        found = looked(kube, everywhere)
        assert found.conditions["n1"] == {type_: {"type": type_, "status": "True"}} and found.reports[report] == {"nodeUID": "u"}
