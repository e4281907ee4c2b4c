"""No namespace makes another wait for all of its claims. Without turns in the queue the first of these took a minute."""

import pytest

from tests.harness.tenants import Crowd, seconds_of_the_quiet

_SECRET = "csi.storage.k8s.io/provisioner-secret-"
_MISSING_SECRET = {f"{_SECRET}name": "none", f"{_SECRET}namespace": "${pvc.namespace}"}

CROWDS = {
    "too large for the node that they name": Crowd(claims=300, size="1Ti", selected=True),
    "with a secret that nobody makes": Crowd(claims=300, selected=True, parameters=_MISSING_SECRET),
    "at which the driver hangs": Crowd(claims=300, size="1Ti", selected=True, hanging=60.0),
}


@pytest.mark.parametrize("crowd", CROWDS.values(), ids=CROWDS)
def test_claims_that_can_never_be_made_delay_those_of_others_by_turns_at_the_rate_limit_alone(crowd: Crowd):
    """The last moments are those of back-offs that are due together. A turn is two requests at the most, and a claim needs two turns."""
    alone, *later = seconds_of_the_quiet(crowd, after=(0.5, 5.0, 20.0, 40.0, 60.0))
    assert max(later) <= 2 * alone + 2 * 2 / crowd.qps


@pytest.mark.parametrize("selected", [False, True])
def test_where_the_rate_is_no_limit_they_take_no_longer_than_twice_as_long(selected: bool):
    crowd = Crowd(claims=300, size="1Ti", selected=selected, qps=-1.0)
    alone, *later = seconds_of_the_quiet(crowd, after=(0.0, 0.5, 5.0, 20.0))
    assert max(later) <= 2 * alone
