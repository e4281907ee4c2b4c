"""Who makes a claim again: the StatefulSet that has a replica for it, or somebody whom a person vouches for, and nobody else."""

from dataclasses import replace
from typing import Any

import pytest

from sidecar.drain.remade import LostClaim, NotRemade, Remade, ReplicatedSet, who_remakes
from sidecar.model import names

DB = ReplicatedSet("shop", "db", "uid-db", frozenset({"data", "a-b"}), first=0, replicas=3, deleting=False)


def claim(name: str, **more: Any) -> LostClaim:
    return replace(LostClaim("shop", name, None), **more)


@pytest.mark.parametrize("name", ["data-db-0", "data-db-2", "a-b-db-1"])
def test_a_set_makes_the_claims_of_its_replicas(name: str) -> None:
    found = who_remakes(claim(name), [DB])
    assert isinstance(found, Remade)
    assert "StatefulSet db" in found.by


@pytest.mark.parametrize(
    ("lost", "of"),
    [
        pytest.param(claim("data-db-3"), DB, id="scaled down"),
        pytest.param(claim("data-db-0"), replace(DB, first=1), id="below its first ordinal"),
        pytest.param(claim("data-db-0"), replace(DB, replicas=0), id="scaled to nothing"),
        pytest.param(claim("data-db-0"), replace(DB, deleting=True), id="F2 the set is being deleted"),
        pytest.param(claim("data-db-0"), replace(DB, namespace="other"), id="of another namespace"),
        pytest.param(claim("logs-db-0"), DB, id="F2 not templated"),
        pytest.param(claim("data-db"), DB, id="no ordinal"),
        pytest.param(claim("data-db-00"), DB, id="an ordinal that no set writes"),
        pytest.param(claim("data-db-+1"), DB, id="a sign"),
        pytest.param(claim("data-db-²"), DB, id="a digit of another kind"),
        pytest.param(claim(f"data-db-{'9' * 5000}"), DB, id="a number without end"),
        pytest.param(claim("data-0"), replace(DB, templates=frozenset({"data"})), id="not the set's name"),
        pytest.param(claim("data-db-0", of_pod=True), DB, id="a generic ephemeral volume's"),
        pytest.param(claim("x", of_pod=True, word="true"), DB, id="a generic ephemeral volume's, with a word"),
        pytest.param(claim("x", word="True"), DB, id="another word"),
        pytest.param(claim("x", word="yes"), DB, id="a word that is like it"),
        pytest.param(claim("x", word=""), DB, id="an empty word"),
        pytest.param(claim("x"), DB, id="F2 nobody"),
    ],
)
def test_nobody_else_does(lost: LostClaim, of: ReplicatedSet) -> None:
    assert isinstance(who_remakes(lost, [of]), NotRemade)


def test_a_person_may_vouch_for_it() -> None:
    assert isinstance(who_remakes(claim("x", word="true"), []), Remade)


def test_a_wrong_word_is_named() -> None:
    found = who_remakes(claim("x", word="yes"), [])
    assert isinstance(found, NotRemade)
    assert names.ALLOW_CLAIM_DELETION in found.why


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"volumeClaimTemplates": None},
        {"volumeClaimTemplates": ["data"], "replicas": 3},
        {"volumeClaimTemplates": [{"metadata": {"name": "data"}}], "replicas": "three"},
        {"volumeClaimTemplates": [{"metadata": {"name": "data"}}], "replicas": -1},
        {"volumeClaimTemplates": [{"metadata": {"name": "data"}}], "replicas": True, "ordinals": "one"},
        {"volumeClaimTemplates": [{"metadata": {"name": 5}}], "replicas": 3},
    ],
)
def test_a_set_that_cannot_be_read_makes_no_second_replica(spec: dict[str, Any]) -> None:
    of = ReplicatedSet.of({"metadata": {"namespace": "shop", "name": "db"}, "spec": spec})
    assert isinstance(who_remakes(claim("data-db-1"), [of]), NotRemade)


def test_a_set_is_read_as_the_api_server_has_it() -> None:
    spec = {"volumeClaimTemplates": [{"metadata": {"name": "data"}}], "replicas": 2, "ordinals": {"start": 5}}
    of = ReplicatedSet.of({"metadata": {"namespace": "shop", "name": "db", "uid": "u"}, "spec": spec})
    made = [name for name in (f"data-db-{number}" for number in range(10)) if isinstance(who_remakes(claim(name), [of]), Remade)]
    assert made == ["data-db-5", "data-db-6"]
