"""What is listed for a judgement from outside, what of it is kept, and what becomes of it when something cannot be read."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from sidecar.drain.gathering import Gathering
from sidecar.drain.picture import Picture, snapshot_of
from sidecar.kube.api import Page, Resource
from sidecar.kube.errors import ApiError, Forbidden, NotFound
from sidecar.model import names

Json = dict[str, Any]
DRIVER, OTHER = "local.example", "other.example"


@dataclass
class Lists:
    """A cluster of objects by plural, page by page of two; what is in `broken` is answered with that."""

    objects: dict[str, list[Json]] = field(default_factory=dict)
    broken: dict[str, ApiError] = field(default_factory=dict)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    later: dict[tuple[str, str], Json | ApiError] = field(default_factory=dict)
    """What is answered to who asks for it by name, and was in no list."""

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> Json:
        self._look(resource, name, "")
        answer = self.later.get((resource.plural, name))
        if isinstance(answer, ApiError):
            raise answer
        if answer is not None:
            return answer
        for obj in self.objects.get(resource.plural, ()):
            if obj["metadata"]["name"] == name:
                return obj
        raise NotFound(f"{resource.plural} {name} not found", status=404)

    async def list_page(self, resource: Resource, *, field_selector: str = "", continue_token: str = "", **_: Any) -> Page:
        self._look(resource, "", field_selector)
        found = self.objects.get(resource.plural, [])
        if field_selector:
            node = field_selector.removeprefix("spec.nodeName=")
            found = [obj for obj in found if obj["spec"].get("nodeName") == node]
        start = int(continue_token or 0)
        return Page(found[start : start + 2], "1", str(start + 2) if start + 2 < len(found) else "")

    def _look(self, resource: Resource, name: str, selector: str) -> None:
        self.asked.append((resource.plural, name, selector))
        if resource.plural in self.broken:
            raise self.broken[resource.plural]


def meta(name: str, **more: Any) -> Json:
    return {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", **more}


def node(name: str) -> Json:
    return {"metadata": meta(name, labels={"kubernetes.io/hostname": name, "zone": "z"}), "spec": {}, "status": {}}


def volume(name: str, *values: str, key: str = "kubernetes.io/hostname", driver: str = DRIVER, claim: str = "") -> Json:
    affinity = {
        "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}]},
    }
    ref = {"claimRef": {"namespace": "default", "name": claim, "uid": f"uid-{claim}"}} if claim else {}
    spec = {"csi": {"driver": driver, "volumeHandle": f"h-{name}"}, "nodeAffinity": affinity, "capacity": {"storage": "1Gi"}, **ref}
    return {"metadata": meta(name), "spec": spec, "status": {"phase": "Bound" if claim else "Available"}}


def claim(name: str, *, selected: str = "", volume_name: str = "") -> Json:
    notes = {names.STORAGE_PROVISIONER: DRIVER} | ({names.SELECTED_NODE: selected} if selected else {})
    spec: Json = {"resources": {"requests": {"storage": "1Gi"}}, "volumeName": volume_name}
    return {"metadata": meta(name, namespace="default", annotations=notes), "spec": spec}


def cluster() -> Lists:
    csi_node = {
        "metadata": meta("n1"),
        "spec": {"drivers": [{"name": DRIVER, "topologyKeys": ["kubernetes.io/hostname"]}, {"name": "nfs.example"}]},
    }
    content = {"metadata": meta("s1"), "spec": {"driver": DRIVER, "source": {"volumeHandle": "h-pv-1"}}}
    elsewhere = {"metadata": meta("s2"), "spec": {"driver": DRIVER, "source": {"volumeHandle": "h-pv-9"}}}
    return Lists(
        {
            "nodes": [node("n1"), node("n2"), node("n3")],
            "csinodes": [csi_node],
            "persistentvolumes": [
                volume("pv-1", "n1", claim="a"),
                volume("pv-2", "n2", claim="b"),
                volume("pv-zone", "z", key="zone", claim="c"),
                volume("pv-both", "n1", "n2"),
                volume("pv-other", "n1", driver=OTHER),
            ],
            "persistentvolumeclaims": [
                claim("a", selected="n1", volume_name="pv-1"),
                claim("b", selected="n2", volume_name="pv-2"),
                claim("waits", selected="n1"),
                claim("waits-there", selected="n2"),
            ],
            "storageclasses": [{"metadata": meta("fast"), "provisioner": DRIVER}],
            "csistoragecapacities": [
                {"metadata": meta("c1", namespace="d"), "storageClassName": "fast", "nodeTopology": {}, "capacity": "1Gi"}
            ],
            "pods": [
                {"metadata": meta("p1", namespace="default"), "spec": {"nodeName": "n1"}},
                {"metadata": meta("p2", namespace="default"), "spec": {"nodeName": "n2"}},
            ],
            "volumesnapshotcontents": [content, elsewhere],
            "poddisruptionbudgets": [{"metadata": meta("pdb", namespace="default"), "spec": {}, "status": {}}],
            "namespaces": [{"metadata": meta("default", annotations={names.DRAIN_POLICY: "Ignore"})}],
        }
    )


def look(kube: Lists) -> Picture:
    return asyncio.run(Gathering(kube, "n1", now=7.0).look())  # type: ignore[arg-type]


def test_only_what_lies_on_this_node_and_nowhere_else_is_kept() -> None:
    kube = cluster()
    picture = look(kube)
    assert [volume.name for volume in picture.volumes] == ["pv-1", "pv-other"]
    assert [claim.name for claim in picture.claims] == ["a", "waits"]
    assert [pod.name for pod in picture.pods] == ["p1"]
    assert [content.name for content in picture.contents] == ["s1"]
    assert [other.name for other in picture.others] == ["n2", "n3"]
    assert picture.drivers == (DRIVER,)
    assert picture.all_drivers() == (DRIVER, OTHER)
    assert (picture.namespace_policies, picture.ignorance) == ({"default": "Ignore"}, ())
    assert ("pods", "", "spec.nodeName=n1") in kube.asked


def test_a_snapshot_is_one_drivers() -> None:
    snapshot = snapshot_of(look(cluster()), DRIVER)
    assert [volume.name for volume in snapshot.volumes] == ["pv-1"]
    assert [item.name for item in snapshot.in_flight] == ["waits"]
    assert set(snapshot.claims) == {"default/a"}
    assert snapshot.surroundings is not None and [record.name for record in snapshot.surroundings.capacities] == ["c1"]
    other = snapshot_of(look(cluster()), OTHER)
    assert [volume.name for volume in other.volumes] == ["pv-other"]
    assert (other.in_flight, other.contents, other.classes) == ((), (), {})
    assert other.surroundings is not None and other.surroundings.capacities == ()


def test_a_volume_without_affinity_lies_where_its_maker_ran() -> None:
    kube = cluster()
    mine, foreign = volume("pv-mine"), volume("pv-foreign")
    for obj, where in ((mine, "n1"), (foreign, "n2")):
        del obj["spec"]["nodeAffinity"]
        obj["spec"]["csi"]["volumeAttributes"] = {names.PROVISIONER_IDENTITY: f"1700000000000-1234-{DRIVER}-{where}"}
    kube.objects["persistentvolumes"] = [mine, foreign]
    assert [found.name for found in look(kube).volumes] == ["pv-mine"]


def test_a_node_that_is_not_there_is_an_error() -> None:
    kube = cluster()
    kube.objects["nodes"] = [node("n2")]
    with pytest.raises(NotFound, match="n1"):
        look(kube)


@pytest.mark.parametrize("plural", ["persistentvolumes", "persistentvolumeclaims", "storageclasses", "pods", "csinodes", "namespaces"])
def test_what_may_not_be_read_is_told(plural: str) -> None:
    kube = cluster()
    kube.broken[plural] = Forbidden("not allowed", status=403)
    (line,) = look(kube).ignorance
    assert "not allowed" in line and plural.rstrip("s")[:9] in line


def test_budgets_that_could_not_be_read_are_not_no_budgets() -> None:
    kube = cluster()
    assert look(kube).budgets is not None
    kube.broken["poddisruptionbudgets"] = Forbidden("not allowed", status=403)
    picture = look(kube)
    assert picture.budgets is None and len(picture.ignorance) == 1


def test_a_cluster_without_snapshots_has_none() -> None:
    kube = cluster()
    kube.broken["volumesnapshotcontents"] = NotFound("no such resource", status=404)
    picture = look(kube)
    assert (picture.contents, picture.ignorance) == ((), ())
    kube.broken["volumesnapshotcontents"] = Forbidden("not allowed", status=403)
    assert look(kube).ignorance != ()


def test_a_verdict_can_do_without_knowing_where_volumes_could_go() -> None:
    kube = cluster()
    kube.broken["csistoragecapacities"] = Forbidden("not allowed", status=403)
    picture = look(kube)
    assert (picture.capacities, picture.ignorance) == (None, ())
    assert snapshot_of(picture, DRIVER).surroundings is None


def lost(name: str) -> Json:
    return claim(name, selected="n1", volume_name="pv-gone")


def test_a_claim_whose_volume_is_gone_leaves_nothing_unknown() -> None:
    """It says so for ever, and nobody could ever retire its node."""
    kube = cluster()
    kube.objects["persistentvolumeclaims"].append(lost("lost"))
    assert look(kube).ignorance == ()


@pytest.mark.parametrize("error", [None, Forbidden("no", status=403)])
def test_a_volume_that_came_to_be_listed_too_late_is_unknown(error: ApiError | None) -> None:
    kube = cluster()
    kube.objects["persistentvolumeclaims"].append(lost("late"))
    kube.later[("persistentvolumes", "pv-gone")] = error or volume("pv-gone", "n1", claim="late")
    (told,) = look(kube).ignorance
    assert "pv-gone" in told


def test_what_the_namespace_of_a_claim_that_is_gone_says_counts() -> None:
    kube = cluster()
    kube.objects["persistentvolumeclaims"] = []
    assert look(kube).namespace_policies == {"default": "Ignore"}


def test_a_namespace_that_is_gone_leaves_nothing_unknown() -> None:
    kube = cluster()
    kube.objects["namespaces"] = []
    assert (look(kube).namespace_policies, look(kube).ignorance) == ({}, ())


def test_the_class_of_a_volume_that_people_made_counts_whatever_it_says_of_a_provisioner() -> None:
    kube = cluster()
    kube.objects["persistentvolumes"][0]["spec"]["storageClassName"] = "static"
    kube.objects["storageclasses"].append({"metadata": meta("static"), "provisioner": "kubernetes.io/no-provisioner"})
    kube.objects["storageclasses"].append({"metadata": meta("unused"), "provisioner": "kubernetes.io/no-provisioner"})
    assert set(snapshot_of(look(kube), DRIVER).classes) == {"fast", "static"}


def test_a_volume_of_no_driver_is_counted_and_no_more() -> None:
    kube = cluster()
    local = volume("pv-local", "n1", claim="l")
    local["spec"]["local"] = local["spec"].pop("csi") and {"path": "/mnt"}
    kube.objects["persistentvolumes"].append(local)
    picture = look(kube)
    assert (picture.foreign, picture.all_drivers()) == (1, (DRIVER, OTHER))


def test_a_volume_that_asks_for_a_label_the_node_lacks_is_unknown() -> None:
    """People take labels off nodes; what they made themselves does not say where it was made."""
    kube = cluster()
    kube.objects["nodes"][0]["metadata"]["labels"] = {}
    picture = look(kube)
    assert picture.doubtful[DRIVER] == ("pv-1",)
    (told,) = snapshot_of(picture, DRIVER).ignorance
    assert "pv-1" in told and "lacks labels" in told
    assert snapshot_of(picture, "third.example").ignorance == ()
