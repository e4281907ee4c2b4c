"""What the label says of a volume that is made here: this node, or several."""

import pytest

from sidecar.csi.api import TOPOLOGY
from sidecar.local.volume_location import node_label
from sidecar.model.topology import Requirement, Term
from tests.harness import samples


def term(*requirements: tuple[str, str, tuple[str, ...]]) -> Term:
    return Term(tuple(Requirement(*item) for item in requirements))


HERE = term(("example.com/node", "In", ("foo",)))


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        (None, "foo"),
        ((HERE,), "foo"),
        ((term(("example.com/zone", "In", ("a",)), ("example.com/node", "In", ("foo",))),), "foo"),
        ((term(("example.com/zone", "In", ("a",))),), "several"),
        ((HERE, term(("example.com/node", "In", ("bar",)))), "several"),
        ((term(("example.com/node", "In", ("foo", "bar"))),), "several"),
        ((term(("example.com/node", "NotIn", ("foo",))),), "several"),
        ((), "several"),
    ],
)
def test_the_label_names_this_node_only_if_no_other_can_have_the_volume(affinity: tuple[Term, ...] | None, expected: str) -> None:
    assert TOPOLOGY in samples.here().driver.plugin
    assert node_label(samples.here(), affinity) == expected
