"""What a gate consists of, as people find it."""

from sidecar.drain.gate import guard
from sidecar.drain.gate.guard import Post
from sidecar.model import names
from tests.harness.drain.samples import DRIVER, node


def test_each_object_of_a_gate_says_what_it_is_for_and_how_to_get_past_it() -> None:
    """A drainer's message names the budget alone."""
    made = guard.objects(Post(node(), DRIVER, "storage", "pause"))
    for meta in (made.budget["metadata"], made.deployment["metadata"], made.deployment["spec"]["template"]["metadata"]):
        why = meta["annotations"][f"{names.GROUP}/why"]
        assert f"explain node {node().name}" in why and names.FORCE_DRAIN in why and f"uninstall --driver {DRIVER}" in why
