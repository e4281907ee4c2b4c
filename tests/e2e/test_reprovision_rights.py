"""deploy/components/reprovision on a real API server: a claim is deleted by the node that has marked it, as it was judged."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import Json
from sidecar.kube.api import MERGE_PATCH
from sidecar.model import names
from tests.deploy.manifests import DRIVER
from tests.harness.persons import Person
from tests.harness.policies import Abuse, Request, Secured, allowed, built, in_force, secured

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"


def machine(cluster: Secured, node: str) -> str:
    return f"{node}/{cluster.plane.request('GET', f'/api/v1/nodes/{node}')['metadata']['uid']}"


def claim(name: str, mark: str = "", *, made_on: str = "n1", volume: str = "some-volume", driver: str = DRIVER) -> Json:
    wish: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}}
    said = {names.REPROVISIONED_BY: mark, names.SELECTED_NODE: made_on, names.STORAGE_PROVISIONER: driver}
    notes = {key: text for key, text in said.items() if text}
    return {"metadata": {"name": name, "annotations": notes}, "spec": wish | ({"volumeName": volume} if volume else {})}


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    overlay = built(tmp_path_factory.mktemp("overlay"), "drain", "emptying", "reprovision")
    with secured(plane, overlay) as made:
        made.make(CLAIMS, claim("first"))
        in_force(deletion(made, "first"), made.nobody, "bound to no pod")
        yield made


def deletion(cluster: Secured, name: str, **preconditions: Any) -> Request:
    """With the uid and version as they are, unless others are named; None leaves one out."""

    def stored() -> Json:
        return dict(cluster.plane.request("GET", f"{CLAIMS}/{name}")["metadata"])

    def rests() -> Json | None:
        """A controller may have something to say of a new claim, after which its version is another."""
        before = stored()
        time.sleep(0.5)
        return before if stored()["resourceVersion"] == before["resourceVersion"] else None

    meta = until(rests, f"nobody writes to {name}")
    assert meta
    wanted = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]} | preconditions
    # A body outdoes what stands in the address.
    options: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]}
    options["preconditions"] = {key: value for key, value in wanted.items() if value}
    return Request("DELETE", f"{CLAIMS}/{name}", options)


def note(name: str, mark: str | None) -> Request:
    return Request("PATCH", f"{CLAIMS}/{name}", {"metadata": {"annotations": {names.REPROVISIONED_BY: mark}}}, MERGE_PATCH)


def test_what_the_program_sends_is_let_through(cluster: Secured) -> None:
    mine = machine(cluster, "n1")
    cluster.make(CLAIMS, claim("marked", mine))
    cluster.make(CLAIMS, claim("bare"))
    allowed(note("bare", mine), cluster.n1)
    allowed(note("marked", None), cluster.n1)
    allowed(deletion(cluster, "marked"), cluster.n1)


def test_a_claim_that_the_own_node_has_not_marked(cluster: Secured) -> None:
    marks = {"unmarked": "", "others": machine(cluster, "n2"), "former": "n1/11111111-2222-3333-4444-555555555555", "garbage": "n1"}
    for name, mark in marks.items():
        cluster.make(CLAIMS, claim(name, mark))
        Abuse(deletion(cluster, name), "deletes no claim but those that its own node has marked").check(cluster, cluster.n1)


def test_a_claim_whatever_it_is_by_now(cluster: Secured) -> None:
    cluster.make(CLAIMS, claim("changed", machine(cluster, "n1")))
    for without in ("uid", "resourceVersion"):
        Abuse(deletion(cluster, "changed", **{without: None}), "as it has judged it").check(cluster, cluster.n1)


def test_a_mark_of_a_machine_that_had_this_name_before(cluster: Secured) -> None:
    """Where a Node was registered again nobody else takes it off."""
    former = "n1/11111111-2222-3333-4444-555555555555"
    cluster.make(CLAIMS, claim("left", former))
    allowed(note("left", None), cluster.n1)
    Abuse(note("left", machine(cluster, "n1")), "marks claims by its own node").check(cluster, cluster.n1)
    Abuse(note("left", None), "marks claims by its own node").check(cluster, cluster.n2)


@pytest.mark.parametrize(("before", "after"), [("", "n2"), ("n2", ""), ("n2", "n1"), ("n1", "n2")])
def test_a_mark_of_another_node(cluster: Secured, before: str, after: str) -> None:
    name = f"mark-{before or 'none'}-{after or 'none'}"
    cluster.make(CLAIMS, claim(name, machine(cluster, before) if before else ""))
    asked = note(name, machine(cluster, after) if after else None)
    Abuse(asked, "marks claims by its own node").check(cluster, cluster.n1)


def test_a_claim_whose_volume_was_made_on_another_node(cluster: Secured) -> None:
    """Whoever has stolen one node's token: neither its mark nor its deletion, nor another word for where it was made."""
    mine, other = machine(cluster, "n1"), machine(cluster, "n2")
    cluster.make(CLAIMS, claim("n2s-of-n2", other, made_on="n2"))
    allowed(deletion(cluster, "n2s-of-n2"), cluster.n2)
    cluster.make(CLAIMS, claim("n2s", made_on="n2"))
    cluster.make(CLAIMS, claim("n2s-marked", mine, made_on="n2"))
    cluster.make(CLAIMS, claim("n1s", mine, made_on="n1"))
    allowed(note("n2s", other), cluster.n2)
    allowed(deletion(cluster, "n1s"), cluster.n1)
    allowed(note("n2s-marked", None), cluster.n1)
    Abuse(note("n2s", mine), "whose volume was made on n2").check(cluster, cluster.n1)
    Abuse(deletion(cluster, "n2s-marked"), "whose volume was made on n2").check(cluster, cluster.n1)
    for word in (None, "n1"):
        asked = Request("PATCH", f"{CLAIMS}/n2s", {"metadata": {"annotations": {names.SELECTED_NODE: word}}}, MERGE_PATCH)
        Abuse(asked, "that a claim is for node n2").check(cluster, cluster.n1)


def test_a_claim_that_was_bound_by_hand_or_of_another_driver_or_without_a_volume(cluster: Secured) -> None:
    """Whoever binds at once or by hand leaves no node on a claim, or no driver: each node could say that it is its own."""
    mine, others = machine(cluster, "n1"), "claims without a volume, nor those of other drivers"
    cases = (
        ("of-another-driver", {"driver": "other.example.com"}, others),
        ("asked-of-nobody", {"driver": ""}, others),
        ("pending", {"volume": ""}, others),
        ("of-no-node", {"made_on": ""}, "on no node that they name"),
    )
    for name, made, says in cases:
        cluster.make(CLAIMS, claim(name, **made))
        cluster.make(CLAIMS, claim(f"{name}-marked", mine, **made))
        Abuse(note(name, mine), says).check(cluster, cluster.n1)
        Abuse(deletion(cluster, f"{name}-marked"), says).check(cluster, cluster.n1)
    to_ours = Request(
        "PATCH", f"{CLAIMS}/of-another-driver", {"metadata": {"annotations": {names.STORAGE_PROVISIONER: DRIVER}}}, MERGE_PATCH
    )
    Abuse(to_ours, "does not change which driver was asked").check(cluster, cluster.n1)


@pytest.mark.parametrize("word", [names.ALLOW_CLAIM_DELETION, names.REPROVISION_PEERS])
def test_the_words_of_people_are_not_the_sidecars_to_say(cluster: Secured, word: str) -> None:
    name = f"words-{word.rpartition('/')[2]}"
    cluster.make(CLAIMS, claim(name))
    asked = Request("PATCH", f"{CLAIMS}/{name}", {"metadata": {"annotations": {word: "true"}}}, MERGE_PATCH)
    Abuse(asked, "is for people to say").check(cluster, cluster.n1)


def test_a_token_of_no_node(cluster: Secured) -> None:
    cluster.make(CLAIMS, claim("nobodys"))
    who: Person = cluster.nobody
    code, said, broken = deletion(cluster, "nobodys").by(who)
    assert code == 422 and "bound to no pod" in said and broken, (code, said, broken)
