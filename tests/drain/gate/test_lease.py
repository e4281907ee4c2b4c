"""The lease of a node with a gate, as the node's own sidecar keeps it."""

from dataclasses import replace
from typing import Any

from sidecar.drain.gate import lease as gate_lease
from sidecar.drain.leases import Hold, Lease, LeaseView, NotWanted, Release, Renew, Take, decide, identity
from sidecar.kube.api import LEASES
from sidecar.model import names
from tests.harness.cluster_tools import new_cluster
from tests.harness.drain.samples import DRIVER, NOW

ME = identity("uid-n1", DRIVER)
MINE = Lease(names.guard("uid-n1", DRIVER), "u", "7", ME, "n1", "uid-n1", NOW - 10, 900.0)


def view(**changes: Any) -> LeaseView:
    terms = gate_lease.terms("n1", "uid-n1", DRIVER, namespace="default", holder=ME)
    return replace(LeaseView(NOW, terms, wanted=True, stored=None, own=True), **changes)


def test_a_gate_has_a_lease_and_the_api_server_takes_it() -> None:
    given = decide(view())
    assert isinstance(given, Take) and not given.replaces
    cluster = new_cluster()
    stored = Lease.of(cluster.create(LEASES, given.body, namespace="default").obj)
    assert stored.name == gate_lease.name("uid-n1", DRIVER)
    assert (stored.holder, stored.node, stored.node_uid, stored.renewed) == (ME, "n1", "uid-n1", NOW)
    assert given.body["metadata"]["labels"] == {names.GUARDED_NODE: "uid-n1", names.GUARDED_FOR: DRIVER}
    later = decide(view(now=NOW + 300, stored=stored))
    assert isinstance(later, Renew)
    cluster.replace(LEASES, later.body, name=stored.name, namespace="default")


def test_the_lease_is_renewed_every_five_minutes_and_not_before() -> None:
    assert isinstance(decide(view(stored=MINE)), Hold)
    assert isinstance(decide(view(stored=replace(MINE, renewed=NOW - 299))), Hold)
    assert isinstance(decide(view(stored=replace(MINE, renewed=NOW - 300))), Renew)


def test_a_neighbour_that_holds_the_lease_gives_way() -> None:
    back = decide(view(stored=replace(MINE, holder=identity("uid-n2", DRIVER))))
    assert isinstance(back, Take) and back.replaces
    assert back.body["spec"]["holderIdentity"] == ME
    assert back.body["metadata"]["resourceVersion"] == "7"


def test_without_a_gate_there_is_no_lease() -> None:
    assert decide(view(wanted=False, stored=MINE)) == Release(MINE.name, "u", "", "it is not needed any more")
    theirs = decide(view(wanted=False, stored=replace(MINE, holder="somebody")))
    assert isinstance(theirs, Take), "it is taken back first: nobody deletes what another one holds"
    assert isinstance(decide(view(wanted=False)), NotWanted)
