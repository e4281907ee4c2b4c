"""How long claims have waited here, as far as one process has seen."""

from sidecar.drain.facts.waiting_claims import WaitingClaims
from sidecar.model.objects import Claim
from tests.harness.drain.listed_cluster import claim


def test_a_claim_waits_from_when_it_was_first_seen_until_it_is_bound_or_goes() -> None:
    now = 100.0
    waiting = WaitingClaims(clock=lambda: now)
    first, second = Claim.of(claim("a", selected="n1")), Claim.of(claim("b", selected="n1"))
    assert waiting.seconds([first]) == {"uid-a": 0.0}
    now = 130.0
    assert waiting.seconds([first, second]) == {"uid-a": 30.0, "uid-b": 0.0}
    assert waiting.seconds([second]) == {"uid-b": 0.0}
    now = 140.0
    assert waiting.seconds([first, second]) == {"uid-a": 0.0, "uid-b": 10.0}
    assert waiting.seconds([Claim.of(claim("a", selected="n1", volume_name="pv"))]) == {}
