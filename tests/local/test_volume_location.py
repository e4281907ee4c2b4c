"""What the label says of a volume that is made here: this node, or several; and which labels a node hears of."""

from dataclasses import replace

from sidecar.csi.api import TOPOLOGY
from sidecar.local.volume_location import heard_volumes, node_label
from sidecar.model import names
from sidecar.model.selectors import parse_selector
from sidecar.model.topology import Requirement, Term
from tests.harness import samples


def term(*requirements: tuple[str, str, tuple[str, ...]]) -> Term:
    return Term(tuple(Requirement(*item) for item in requirements))


HERE = term(("example.com/node", "In", ("foo",)))


def test_the_label_names_this_node_only_if_no_other_can_have_the_volume() -> None:
    for affinity, expected in [
        (None, "foo"),
        ((HERE,), "foo"),
        ((term(("example.com/zone", "In", ("a",)), ("example.com/node", "In", ("foo",))),), "foo"),
        ((term(("example.com/zone", "In", ("a",))),), "several"),
        ((HERE, term(("example.com/node", "In", ("bar",)))), "several"),
        ((term(("example.com/node", "In", ("foo", "bar"))),), "several"),
        ((term(("example.com/node", "NotIn", ("foo",))),), "several"),
        ((), "several"),
    ]:
        assert TOPOLOGY in samples.here().driver.plugin
        assert node_label(samples.here(), affinity) == expected


def test_a_volume_is_heard_by_one_watch_of_its_node_and_by_none_of_another_unless_the_other_may_have_to_do_with_it() -> None:
    for node in ["foo", "several", "n" * 253, f"{'n' * 252}o"]:
        here, other = replace(samples.here(), node=node), replace(samples.here(), node="other")
        only_here, shared = node_label(here, None), node_label(here, (term(("example.com/zone", "In", ("a",))),))

        def watches_of(at: object, label: str | None) -> int:
            labels = {} if label is None else {names.VOLUME_NODE: label}
            return sum(all(each.holds(labels) for each in parse_selector(text)) for text in heard_volumes(at))  # type: ignore[arg-type]

        assert [watches_of(here, label) for label in (only_here, shared, None)] == [1, 1, 1]
        assert [watches_of(other, label) for label in (only_here, shared, None)] == [int(node == "several"), 1, 1]
