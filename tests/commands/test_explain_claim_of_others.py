"""`explain pvc --provisioning=false`: where the volume is that another program made, and that nothing is done."""

import asyncio
from typing import Any

import pytest

from sidecar.commands.explain import claim_of_others
from sidecar.model import names
from sidecar.model.objects import Claim
from tests.harness import samples
from tests.harness.doors import ScriptedKube

MADE_HERE = {names.PROVISIONER_IDENTITY: f"1-2-{samples.DRIVER}-{samples.NODE}"}


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": {samples.KEY: name}}, "spec": {}, "status": {}}


def rows(volume: dict[str, Any] | None, *nodes: str) -> dict[str, str]:
    kube = ScriptedKube({("nodes", name): node(name) for name in nodes})
    if volume is not None:
        kube.objects["persistentvolumes", "pv"] = volume
    claim = Claim.of(samples.claim_json(volumeName="pv"))
    return asyncio.run(claim_of_others.rows(kube, claim))  # type: ignore[arg-type]


def volume(attributes: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    csi = {"driver": samples.DRIVER, "volumeHandle": "h", "volumeAttributes": attributes or {}}
    return samples.volume_json(meta={"name": "pv"}, spec={"csi": csi, **spec}, status={"phase": "Bound"})


@pytest.mark.parametrize(
    ("found", "nodes", "place"),
    [
        (volume(), (samples.NODE, "bar"), samples.NODE),
        (volume(), ("bar",), "none that lives"),
        (volume(MADE_HERE, nodeAffinity=None), (samples.NODE, "bar"), samples.NODE),
        (volume(nodeAffinity=None), (samples.NODE, "bar"), "none that lives"),
    ],
    ids=["by affinity", "of a node that is gone", "by its maker", "unknown"],
)
def test_where_the_volume_is(found: dict[str, Any], nodes: tuple[str, ...], place: str) -> None:
    assert rows(found, *nodes)["volume is on"].startswith(place)


def test_a_volume_that_is_gone_and_one_that_is_not_made_yet() -> None:
    assert rows(None) == {"volume": "pv: not there"}
    claim = Claim.of(samples.claim_json())
    assert asyncio.run(claim_of_others.rows(ScriptedKube(), claim)) == {"volume": "none yet"}  # type: ignore[arg-type]
    assert "makes the volume" in claim_of_others.why(claim, samples.DRIVER)
    assert "makes the volume" not in claim_of_others.why(claim, "other.example")
