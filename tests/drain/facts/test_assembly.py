"""One cluster, looked at by its own running sidecar and from outside: the facts come two ways, and the judgement is the same."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from sidecar.drain.facts.assembly import assemble
from sidecar.drain.facts.lookups import Lookups
from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.facts.watched import Watched
from sidecar.drain.judgement.assess import assess
from sidecar.drain.settings import Settings
from sidecar.drain.vocabulary import Reason, VolumeClass
from sidecar.kube.api import Change
from sidecar.kube.store import Store
from sidecar.model import names
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent
from sidecar.model.objects import Claim, Class, Volume
from tests.harness.drain.listed_cluster import DRIVER, Lists, claim, in_order, look, meta, ready, volume

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


def silent_namespace(kube: Lists) -> None:
    kube.objects["namespaces"] = [{"metadata": meta("default")}]


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


def claim_made_anew_elsewhere_and_used(kube: Lists) -> None:
    claim_made_anew_elsewhere(kube)
    in_use(kube)


def claim_that_its_volume_names_without_a_uid(kube: Lists) -> None:
    """Whoever makes a volume by hand writes the claim's name into it, and hardly ever its uid. The claim need not be this driver's."""
    kube.objects["persistentvolumes"][0]["spec"]["claimRef"]["uid"] = ""
    kube.objects["persistentvolumeclaims"][0] = claim("a", selected="n1")
    notes = kube.objects["persistentvolumeclaims"][0]["metadata"]["annotations"]
    del notes[names.STORAGE_PROVISIONER]
    notes[names.DRAIN_POLICY] = "Ignore"


def claim_with_an_unseen_volume(kube: Lists) -> None:
    kube.objects["persistentvolumeclaims"].append(claim("late", selected="n1", volume_name="pv-late"))
    kube.later[("persistentvolumes", "pv-late")] = volume("pv-late", "n1", claim="late")


def claim_whose_volume_is_gone(kube: Lists) -> None:
    kube.objects["persistentvolumeclaims"].append(claim("lost", selected="n1", volume_name="pv-lost"))


def class_of_volumes_made_by_hand(kube: Lists) -> None:
    kube.objects["persistentvolumes"][0]["spec"]["storageClassName"] = "static"
    for name in ("static", "unused"):
        kube.objects["storageclasses"].append({"metadata": meta(name), "provisioner": "kubernetes.io/no-provisioner"})


def labelled_content(kube: Lists) -> None:
    labels = {names.CONTENT_MANAGED_BY: "n1"}
    kube.objects["volumesnapshotcontents"][1]["metadata"]["labels"] = labels


@pytest.mark.parametrize(
    "change",
    [
        as_it_is,
        in_use,
        silent_namespace,
        without_labels,
        claim_gone,
        claim_says_nothing_yet,
        claim_made_anew_elsewhere,
        claim_made_anew_elsewhere_and_used,
        claim_that_its_volume_names_without_a_uid,
        claim_with_an_unseen_volume,
        claim_whose_volume_is_gone,
        class_of_volumes_made_by_hand,
        labelled_content,
    ],
    ids=lambda change: change.__name__.replace("_", " "),
)
def test_the_same_cluster_gives_the_same_snapshot_and_judgement_from_inside_and_outside(change: Any) -> None:
    kube = ready()
    change(kube)
    inside, outside = asyncio.run(from_inside(kube)), from_outside(kube)
    assert in_order(inside) == in_order(outside)
    assert assess(inside) == assess(outside)


def test_that_cluster_has_something_to_judge() -> None:
    assessment = assess(from_outside(ready()))
    assert {held.class_ for held in assessment.volumes} == {VolumeClass.IDLE, VolumeClass.IN_FLIGHT, VolumeClass.SNAPSHOT}
    assert {blocker.reason for blocker in assessment.blockers} == {Reason.SNAPSHOT_ON_NODE, Reason.PROVISIONING_IN_FLIGHT}


def test_a_claim_that_its_volume_names_speaks_for_it_before_it_is_bound() -> None:
    kube = ready()
    claim_says_nothing_yet(kube)
    snapshot = from_outside(kube)
    assert set(snapshot.claims) == {"default/a"}
    assert [item.name for item in snapshot.in_flight] == ["a", "waits"]
    assert [held.claim for held in assess(snapshot).volumes if held.name == "pv-1"] == ["default/a"]


def test_a_claim_that_was_made_anew_elsewhere_does_not_speak_for_the_volume() -> None:
    kube = ready()
    claim_made_anew_elsewhere(kube)
    kube.objects["persistentvolumeclaims"][0]["metadata"]["annotations"][names.DRAIN_POLICY] = "Ignore"
    snapshot = from_outside(kube)
    assert [item.name for item in snapshot.in_flight] == ["waits"]
    (held,) = [held for held in assess(snapshot).volumes if held.name == "pv-1"]
    assert (held.claim, held.policy_source) == ("default/a", "Namespace default")


def test_pods_of_a_claim_that_was_made_anew_do_not_use_the_volume_of_the_former_one() -> None:
    kube = ready()
    claim_made_anew_elsewhere_and_used(kube)
    (held,) = [held for held in assess(asyncio.run(from_inside(kube))).volumes if held.name == "pv-1"]
    assert (held.class_, held.pods) == (VolumeClass.IDLE, ())


def test_a_claim_that_its_volume_names_without_a_uid_has_its_say_before_it_is_bound() -> None:
    kube = ready()
    claim_that_its_volume_names_without_a_uid(kube)
    (held,) = [held for held in assess(asyncio.run(from_inside(kube))).volumes if held.name == "pv-1"]
    assert held.policy_source == "PersistentVolumeClaim"
