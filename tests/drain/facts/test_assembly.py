"""One cluster, looked at by its own running sidecar and from outside: the facts come two ways, and the judgement is the same."""

import asyncio
from dataclasses import replace
from typing import Any

from sidecar.drain.facts.assembly import Facts, assemble
from sidecar.drain.facts.listed_cluster import NodePicker
from sidecar.drain.facts.lookups import Lookups
from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.facts.watched import Watched
from sidecar.drain.judgement.assess import assess
from sidecar.drain.settings import Settings
from sidecar.kube.api import Change
from sidecar.kube.store import Store
from sidecar.model import names
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent
from sidecar.model.objects import Attachment, Claim, Class, Volume
from sidecar.model.topology import Segment
from tests.harness.drain.listed_cluster import DRIVER, Lists, claim, in_order, look, look_at_all, meta, pod, ready, volume

NOW = 7.0


def store(records: Any, *, index: Any = None) -> Store[Any]:
    filled: Store[Any] = Store(index or {})
    for record in records:
        filled.apply(Change(record.uid if isinstance(record, Claim) else record.name, None, record))
    return filled


def watches(kube: Lists) -> Watched:
    """What the watches of n1's sidecar keep of that cluster."""

    def of(plural: str, record: Any) -> list[Any]:
        return [record(obj) for obj in kube.objects.get(plural, ())]

    volumes = [found for found in of("persistentvolumes", Volume.of) if found.driver == DRIVER]
    claims = [
        found for found in of("persistentvolumeclaims", Claim.of) if found.provisioner == DRIVER and found.selected_node in ("", "n1")
    ]
    contents = [found for found in of("volumesnapshotcontents", SnapshotContent.of) if found.driver == DRIVER]
    return Watched(
        nodes=store(found for found in of("nodes", Node.of) if found.name == "n1"),
        pods=store(found for found in of("pods", Pod.of) if found.node == "n1"),
        contents=store(found for found in contents if found.managed_by in ("", "n1")),
        budgets=store(of("poddisruptionbudgets", Budget.of)),
        claims=store((found for found in claims if found.provisioner == DRIVER), index={"node": lambda item: (item.selected_node,)}),
        volumes=store(volumes),
        classes=store(found for found in of("storageclasses", Class.of) if found.provisioner == DRIVER),
        ignorance=lambda: (),
        segment=Segment.of({} if kube.objects["nodes"][0]["metadata"]["labels"] == {} else {names.HOSTNAME: "n1"}),
        attached=lambda: frozenset(found.volume for found in of("volumeattachments", Attachment.of) if found.node == "n1"),
    )


async def from_inside(kube: Lists) -> Snapshot:
    watched = watches(kube)
    node = watched.nodes.get("n1")
    assert node is not None
    lookups = Lookups(kube, Settings("n1", DRIVER, "d", "1"), watched, clock=lambda: 0.0)  # type: ignore[arg-type]
    facts = await lookups.facts(node)
    return assemble(replace(facts, surroundings=await lookups.surroundings()), now=NOW)


def from_outside(kube: Lists) -> Snapshot:
    return assemble(look(kube).facts_of(DRIVER), now=NOW)


def as_it_is(kube: Lists) -> None:
    pass


def in_use(kube: Lists) -> None:
    kube.objects["pods"][0]["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "a"}}]


def without_labels(kube: Lists) -> None:
    kube.objects["nodes"][0]["metadata"]["labels"] = {}


def claim_gone(kube: Lists) -> None:
    kube.objects["persistentvolumeclaims"] = []


def claim_says_nothing_yet(kube: Lists) -> None:
    """A volume is there before its claim says so."""
    kube.objects["persistentvolumeclaims"][0] = claim("a", selected="n1")


def claim_made_anew_elsewhere(kube: Lists) -> None:
    """The claim of that name is another one by now, and waits for another node."""
    kube.objects["persistentvolumeclaims"][0] = claim("a", selected="n2")
    kube.objects["persistentvolumeclaims"][0]["metadata"]["uid"] = "uid-new"


def claim_that_its_volume_names_without_a_uid(kube: Lists) -> None:
    """Whoever makes a volume by hand writes the claim's name into it, and hardly ever its uid. The claim need not be this driver's."""
    kube.objects["persistentvolumes"][0]["spec"]["claimRef"]["uid"] = ""
    kube.objects["persistentvolumeclaims"][0] = claim("a", selected="n1")
    notes = kube.objects["persistentvolumeclaims"][0]["metadata"]["annotations"]
    del notes[names.STORAGE_PROVISIONER]
    notes[names.DRAIN_POLICY] = "Ignore"


def pending_pod(kube: Lists) -> None:
    """As after an eviction: it was made again, and waits for this very volume."""
    kube.objects["pods"].append(pod("db-0", "a"))


def volume_of_two_nodes_that_is_mounted_here(kube: Lists) -> None:
    kube.objects["persistentvolumes"][3] = volume("pv-both", "n1", "n2", claim="both")
    kube.objects["persistentvolumeclaims"].append(claim("both", selected="n2", volume_name="pv-both"))
    kube.objects["pods"].append(pod("db-0", "both", node="n1", phase="Running"))


def volume_without_affinity(kube: Lists) -> None:
    del kube.objects["persistentvolumes"][3]["spec"]["nodeAffinity"]


def snapshot_whose_source_is_gone(kube: Lists) -> None:
    """Nothing says where it is; the other one's source is another node's."""
    kube.objects["volumesnapshotcontents"].append({"metadata": meta("s3"), "spec": {"driver": DRIVER, "source": {"volumeHandle": "gone"}}})
    kube.objects["volumesnapshotcontents"][1]["spec"]["source"]["volumeHandle"] = "h-pv-2"


def attached(kube: Lists) -> None:
    source = {"source": {"persistentVolumeName": "pv-1"}, "attacher": DRIVER}
    kube.objects["volumeattachments"] = [
        {"metadata": meta("va-1"), "spec": {**source, "nodeName": "n1"}},
        {"metadata": meta("va-2"), "spec": {**source, "nodeName": "n2"}},
    ]


def pod_that_runs_with_a_claim_that_is_gone(kube: Lists) -> None:
    kube.objects["pods"].append(pod("db-0", "nothing", node="n1", phase="Running"))


def pod_that_runs_with_a_volume_that_is_gone(kube: Lists) -> None:
    kube.objects["persistentvolumeclaims"].append(claim("b2", selected="n2", volume_name="pv-gone"))
    kube.objects["pods"].append(pod("db-0", "b2", node="n1", phase="Running"))


def test_the_same_cluster_gives_the_same_snapshot_and_judgement_from_inside_and_outside() -> None:
    for change in [
        as_it_is,
        pending_pod,
        volume_of_two_nodes_that_is_mounted_here,
        volume_without_affinity,
        snapshot_whose_source_is_gone,
        attached,
        pod_that_runs_with_a_claim_that_is_gone,
        pod_that_runs_with_a_volume_that_is_gone,
        in_use,
        without_labels,
        claim_gone,
        claim_says_nothing_yet,
        claim_made_anew_elsewhere,
        claim_that_its_volume_names_without_a_uid,
    ]:
        kube = ready()
        change(kube)
        # Only the node's own sidecar has seen what was a moment ago, and knows what others cannot see.
        lately: dict[str, Any] = {"lately_used": frozenset(), "lately_named": frozenset(), "lately_until": {}}
        inside = replace(asyncio.run(from_inside(kube)), **lately, hidden=frozenset())
        outside = from_outside(kube)
        assert in_order(inside) == in_order(outside)
        assert assess(inside) == assess(outside)
        one_of_all = assemble(NodePicker(look_at_all(kube)).node("n1").facts_of(DRIVER), now=NOW)
        assert in_order(one_of_all) == in_order(outside)


def test_a_volume_of_which_nothing_says_where_it_is_is_where_a_pod_runs_with_it() -> None:
    def loose(facts: Facts) -> set[str]:
        return {volume.name for volume, _ in facts.unplaced}

    for change in (as_it_is, volume_without_affinity):
        kube = ready()
        change(kube)
        assert loose(look(kube).facts_of(DRIVER)) == {"pv-zone", "pv-both"}
        kube.objects["persistentvolumes"][3]["spec"]["claimRef"] = {"namespace": "default", "name": "both", "uid": "uid-both"}
        kube.objects["pods"].append(pod("db-0", "both", node="n2", phase="Running"))
        assert loose(look(kube).facts_of(DRIVER)) == loose(NodePicker(look_at_all(kube)).node("n1").facts_of(DRIVER)) == {"pv-zone"}


def test_a_claim_that_was_made_anew_elsewhere_does_not_speak_for_the_volume() -> None:
    kube = ready()
    claim_made_anew_elsewhere(kube)
    kube.objects["persistentvolumeclaims"][0]["metadata"]["annotations"][names.DRAIN_POLICY] = "Ignore"
    snapshot = from_outside(kube)
    assert [item.name for item in snapshot.in_flight] == ["waits"]
    (held,) = [held for held in assess(snapshot).volumes if held.name == "pv-1"]
    assert (held.claim, held.policy_source) == ("default/a", "Namespace default")


def test_a_claim_that_its_volume_names_without_a_uid_has_its_say_before_it_is_bound() -> None:
    kube = ready()
    claim_that_its_volume_names_without_a_uid(kube)
    (held,) = [held for held in assess(asyncio.run(from_inside(kube))).volumes if held.name == "pv-1"]
    assert held.policy_source == "PersistentVolumeClaim"


# --- what counts of the facts -----------------------------------------------------------------------------------------


def facts_of_waiting(claim_json: Any, **changes: Any) -> Facts:
    kube = ready()
    kube.objects["persistentvolumeclaims"] = [claim_json]
    return replace(look(kube).facts_of(DRIVER), **changes)


def flights(facts: Facts, *, now: float = 1000.0) -> list[tuple[str, bool]]:
    return [(item.name, item.begun) for item in assemble(facts, now=now).in_flight]


def waits(created: str = "", **spec: Any) -> Any:
    made = claim("waits", selected="n1")
    made["spec"] |= spec
    made["metadata"] |= {"creationTimestamp": created} if created else {}
    return made


def test_a_claim_whose_volume_can_never_be_made_is_not_in_flight() -> None:
    """Whoever may write a claim can select any node for it, and would keep it from ever being drained."""
    for made in (waits(selector={}), waits(storageClassName="other"), waits(resources={"requests": {"storage": "much"}})):
        assert flights(facts_of_waiting(made)) == []
    gone = waits()
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert flights(facts_of_waiting(gone)) == []
    assert flights(facts_of_waiting(waits())) == [("waits", False)]


def test_what_was_really_begun_is_in_flight_for_as_long_as_it_takes() -> None:
    begun = frozenset({"uid-waits"})
    assert flights(facts_of_waiting(waits(selector={}), begun=begun, waited={"uid-waits": 5000.0})) == [("waits", True)]
    assert flights(facts_of_waiting(waits(), begun=frozenset())) == [("waits", False)]


def test_from_outside_a_claim_counts_for_ten_minutes_after_it_was_made() -> None:
    facts = facts_of_waiting(waits("2026-01-01T00:00:00Z"))
    made_at = 1767225600.0
    assert flights(facts, now=made_at + 599) == [("waits", False)]
    assert flights(facts, now=made_at + 600) == []


def test_pods_elsewhere_count_if_they_name_a_claim_of_a_volume_here_and_have_not_ended() -> None:
    def pod(name: str, of: str, **changes: Any) -> Pod:
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": of}}]
        made = Pod.of({"metadata": meta(name, namespace="default"), "spec": {"volumes": volumes}})
        return replace(made, **changes)

    pods = (pod("waits", "a"), pod("p1", "a"), pod("ended", "a", phase="Failed"), pod("here", "a", node="n1"), pod("other", "b"))
    snapshot = assemble(replace(look(ready()).facts_of(DRIVER), claimants=(*pods, pod("far", "a", node="n2"))), now=NOW)
    assert [item.name for item in snapshot.claimants] == ["waits", "far"]
