"""Whose claim a node may have a volume made for."""

from typing import cast

import pytest

from hack.sim.world.referee import NOT_ITS_OWN, Referee
from sidecar.kube.api import KubeApi
from sidecar.model import names
from tests.harness import samples

UID = "0a1b2c3d-0000-4000-8000-000000000001"


@pytest.mark.parametrize(
    ("owners", "acting", "volume", "found"),
    [
        pytest.param(("", "n1"), ("n1",), f"pvc-{UID}", False, id="its own"),
        pytest.param(("n1", "", "n2"), ("n1",), f"pvc-{UID}", False, id="it was its own: what was begun is asked for"),
        pytest.param(("n1",), ("renamed", "n1"), f"pvc-{UID}", False, id="it was that of the same machine under another name"),
        pytest.param(("n1",), ("n2",), f"pvc-{UID}", True, id="another's"),
        pytest.param(("n1",), ("n2",), "data-0a1b2c3d", True, id="another's, by a shorter name"),
        pytest.param(("",), ("n2",), f"pvc-{UID}", True, id="nobody's"),
        pytest.param(("n1",), ("n2",), "pvc-ffffffff-0000-4000-8000-000000000001", False, id="of no claim: a forged line"),
    ],
)
def test_who_may_have_a_volume_made(owners: tuple[str, ...], acting: tuple[str, ...], volume: str, found: bool):
    told: list[str] = []
    referee = Referee(cast(KubeApi, None), {}, lambda kind, what: told.append(kind))
    for owner in owners:
        claim = samples.claim_json(meta={"uid": UID, "annotations": {names.SELECTED_NODE: owner} if owner else {}})
        referee._look_at_claim(claim)
    referee.acts(acting, volume)
    assert told == [NOT_ITS_OWN] * found
