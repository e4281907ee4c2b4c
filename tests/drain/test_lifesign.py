"""The lease of a node with a gate, as the node's own sidecar keeps it."""

from dataclasses import replace
from typing import Any

from sidecar.drain import lifesign
from sidecar.drain.leases import Lease, identity
from sidecar.drain.lifesign import End, Give, Rest, SignView, decide
from sidecar.kube.api import LEASES
from sidecar.model import names
from tests.drain.samples import DRIVER, NOW, node
from tests.simulation.cluster_tools import new_cluster

ME = identity("uid-n1", DRIVER)
MINE = Lease(names.guard("uid-n1", DRIVER), "u", "7", ME, "n1", "uid-n1", NOW - 10, 900.0)


def view(**changes: Any) -> SignView:
    return replace(SignView(NOW, node(), DRIVER, "default", stands=True, lease=None), **changes)


def test_a_gate_has_one_and_the_api_server_takes_it() -> None:
    given = decide(view())
    assert isinstance(given, Give) and not given.replaces
    cluster = new_cluster()
    stored = Lease.of(cluster.create(LEASES, given.body, namespace="default").obj)
    assert stored.name == lifesign.name("uid-n1", DRIVER)
    assert (stored.holder, stored.node, stored.node_uid, stored.renewed) == (ME, "n1", "uid-n1", NOW)
    assert given.body["metadata"]["labels"] == {names.GUARDED_NODE: "uid-n1", names.GUARDED_FOR: DRIVER}
    later = decide(view(now=NOW + 300, lease=stored))
    assert isinstance(later, Give) and later.replaces
    cluster.replace(LEASES, later.body, name=stored.name, namespace="default")


def test_it_is_renewed_every_five_minutes_and_not_before() -> None:
    assert isinstance(decide(view(lease=MINE)), Rest)
    assert isinstance(decide(view(lease=replace(MINE, renewed=NOW - 299))), Rest)
    assert isinstance(decide(view(lease=replace(MINE, renewed=NOW - 300))), Give)


def test_whoever_has_it_meanwhile_gives_way() -> None:
    back = decide(view(lease=replace(MINE, holder=identity("uid-n2", DRIVER))))
    assert isinstance(back, Give) and back.replaces
    assert back.body["spec"]["holderIdentity"] == ME
    assert back.body["metadata"]["resourceVersion"] == "7"


def test_without_a_gate_there_is_none() -> None:
    assert decide(view(stands=False, lease=MINE)) == End(MINE, "there is no gate any more")
    theirs = decide(view(stands=False, lease=replace(MINE, holder="somebody")))
    assert isinstance(theirs, Give), "it is taken back first: nobody deletes what another one holds"
    assert isinstance(decide(view(stands=False)), Rest)
