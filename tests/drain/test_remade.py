"""Who makes a claim again, and which machine a mark names."""

from dataclasses import replace
from typing import Any

from sidecar.drain.machine_mark import Machine, parse, text
from sidecar.drain.remade import LostClaim, NotRemade, Remade, ReplicatedSet, who_remakes

DB = ReplicatedSet("shop", "db", "uid-db", frozenset({"data", "a-b"}), first=0, replicas=3, deleting=False)


def claim(name: str, **more: Any) -> LostClaim:
    return replace(LostClaim("shop", name, None), **more)


def test_a_set_makes_the_claims_of_its_replicas() -> None:
    for name in ["data-db-0", "data-db-2", "a-b-db-1"]:
        found = who_remakes(claim(name), [DB])
        assert isinstance(found, Remade)
        assert "StatefulSet db" in found.by


def test_nobody_else_does() -> None:
    for lost, of in [
        (claim("data-db-3"), DB),  # scaled down
        (claim("data-db-0"), replace(DB, first=1)),  # below its first ordinal
        (claim("data-db-0"), replace(DB, replicas=0)),  # scaled to nothing
        (claim("data-db-0"), replace(DB, deleting=True)),  # F2 the set is being deleted
        (claim("data-db-0"), replace(DB, namespace="other")),  # of another namespace
        (claim("logs-db-0"), DB),  # F2 not templated
        (claim("data-db"), DB),  # no ordinal
        (claim("data-db-00"), DB),  # an ordinal that no set writes
        (claim("data-db-+1"), DB),  # a sign
        (claim("data-db-²"), DB),  # a digit of another kind
        (claim(f"data-db-{'9' * 5000}"), DB),  # a number without end
        (claim("data-0"), replace(DB, templates=frozenset({"data"}))),  # not the set's name
        (claim("data-db-0", of_pod=True), DB),  # a generic ephemeral volume's
        (claim("x", of_pod=True, word="true"), DB),  # a generic ephemeral volume's, with a word
        (claim("x", word="True"), DB),  # another word
        (claim("x", word="yes"), DB),  # a word that is like it
        (claim("x", word=""), DB),  # an empty word
        (claim("x"), DB),  # F2 nobody
    ]:
        assert isinstance(who_remakes(lost, [of]), NotRemade)


def test_a_person_may_vouch_for_it() -> None:
    assert isinstance(who_remakes(claim("x", word="true"), []), Remade)


def test_a_set_that_cannot_be_read_makes_no_second_replica() -> None:
    for spec in [
        {},
        {"volumeClaimTemplates": None},
        {"volumeClaimTemplates": ["data"], "replicas": 3},
        {"volumeClaimTemplates": [{"metadata": {"name": "data"}}], "replicas": "three"},
        {"volumeClaimTemplates": [{"metadata": {"name": "data"}}], "replicas": -1},
        {"volumeClaimTemplates": [{"metadata": {"name": "data"}}], "replicas": True, "ordinals": "one"},
        {"volumeClaimTemplates": [{"metadata": {"name": 5}}], "replicas": 3},
    ]:
        of = ReplicatedSet.of({"metadata": {"namespace": "shop", "name": "db"}, "spec": spec})
        assert isinstance(who_remakes(claim("data-db-1"), [of]), NotRemade)


def test_a_set_is_read_as_the_api_server_has_it() -> None:
    spec = {"volumeClaimTemplates": [{"metadata": {"name": "data"}}], "replicas": 2, "ordinals": {"start": 5}}
    of = ReplicatedSet.of({"metadata": {"namespace": "shop", "name": "db", "uid": "u"}, "spec": spec})
    made = [name for name in (f"data-db-{number}" for number in range(10)) if isinstance(who_remakes(claim(name), [of]), Remade)]
    assert made == ["data-db-5", "data-db-6"]


# --- The machine that a mark names is read back as it was written, and of nothing else is one read ---


UID = "0b5fdf0e-7a1c-4f7e-9d3a-0c9b1a2d3e4f"


def test_what_is_written_is_read_back() -> None:
    for uid in [UID, "u", "uid-n1", "f" * 63]:
        for node in ["a", "n1", "node-1.example.com", "0", "a" * 253]:
            machine = Machine(node, uid)
            assert text(machine) == f"{node}/{uid}"
            assert parse(text(machine)) == machine


def test_what_is_no_machine_is_none() -> None:
    for written in [
        "",
        "/",
        "n1",
        "n1/",
        f"/{UID}",
        f"n1/{UID}/",
        f"n1/{UID}/x",
        f"n1//{UID}",
        f"N1/{UID}",
        f"-n1/{UID}",
        f"n1./{UID}",
        f"n 1/{UID}",
        f" n1/{UID}",
        f"n1/{UID}\n",
        f"n1\n/{UID}",
        f"n1/-{UID}",
        "n1/a b",
        "n1/ü",
        "nö/u",
        "n1/é",
        f"{'a' * 254}/u",
        f"n1/{'f' * 64}",
        "a" * 262_144,
        "/" * 317,
        f"n1\\{UID}",
        '{"node":"n1"}',
        "n1/\x00",
    ]:
        assert parse(written) is None
