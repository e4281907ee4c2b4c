"""No tenant makes another wait for all of its claims, in however many namespaces it has them.

Without turns in the queue the first of these took a minute, and without groups the second one 135 s.
"""

import pytest

from tests.harness.tenants import Crowd, seconds_of_the_quiet

_SECRET = "csi.storage.k8s.io/provisioner-secret-"
_MISSING_SECRET = {f"{_SECRET}name": "none", f"{_SECRET}namespace": "${pvc.namespace}"}


@pytest.mark.parametrize(
    ("crowd", "after"),
    [
        pytest.param(Crowd(claims=200, selected=True, parameters=_MISSING_SECRET), (0.5, 20.0), id="of one namespace"),
        # Before each has been tried once, nothing tells them from any other. That takes a minute and more at five requests a second.
        pytest.param(Crowd(claims=100, namespaces=100, selected=True, size="1Ti", hanging=60.0), (150.0,), id="of many namespaces"),
    ],
)
def test_claims_that_can_never_be_made_delay_those_of_others_by_turns_at_the_rate_limit_alone(crowd: Crowd, after: tuple[float, ...]):
    """Their Secret is missing, or the driver hangs at them. A turn is two requests at the most, and a claim needs two turns."""
    alone, *later = seconds_of_the_quiet(crowd, after=after)
    assert max(later) <= 2 * alone + 2 * 2 / crowd.qps
