"""What `explain` finds out before it decides. Against a live cluster it runs in the end-to-end tests."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.commands.explain.claim import Facts, _begun, _decide, _under_way, _view
from sidecar.config.parse import Parsed, parse
from sidecar.csi.api import MODIFY_VOLUME, CapacityAnswer, CreateRequest
from sidecar.model import names
from sidecar.model.objects import Claim, Json
from sidecar.provisioning.creations.creation_record import BegunDeletion, CreationRecord
from sidecar.provisioning.creations.journal import FileJournal
from sidecar.provisioning.decisions import Bid, ClaimDecision, CleanUp, Create, DeleteAgain, Refuse, Release
from sidecar.provisioning.needs import CLAIMS, Ref
from sidecar.provisioning.rules import decide
from sidecar.provisioning.view import ClaimView
from tests.harness import samples
from tests.harness.doors import ScriptedDriver, ScriptedKube


def test_what_the_decision_needs_is_fetched_and_told() -> None:
    info = samples.info()
    able = replace(info, controller=info.controller | {MODIFY_VOLUME})
    claim = samples.claim(selected="foo", volumeAttributesClassName="gold")
    view = ClaimView(now=0.0, here=samples.here(able), chance=0.5, claim=claim, class_=samples.class_(), volume=None)
    facts = Facts()
    decision = asyncio.run(_decide(ScriptedKube(), ScriptedDriver(able), view=view, facts=facts))  # type: ignore[arg-type]
    assert facts.rows == {"VolumeAttributesClass gold": "VolumeAttributesClass gold does not exist"}
    assert isinstance(decision, Refuse) and "gold" in decision.why


def decided(kube: ScriptedKube, claim: Claim) -> ClaimDecision:
    """On this node, as far as nothing has to be fetched or measured for it."""
    view = asyncio.run(_view(kube, samples.here(), claim=claim, facts=Facts()))  # type: ignore[arg-type]
    return decide(replace(view, free=CapacityAnswer(2**40), facts={Ref(CLAIMS, "", claim.namespace): {"items": []}}))


@pytest.mark.parametrize("node", ["foo", "bar", ""])
def test_a_clone_is_bid_for_on_the_node_of_its_source_alone(node: str) -> None:
    kube = ScriptedKube()
    kube.objects["storageclasses", "fake-class"] = samples.class_json(volumeBindingMode="Immediate")
    kube.objects["persistentvolumeclaims", "source"] = samples.claim_json(meta={"name": "source"}, volumeName="pv-source")
    if node:
        kube.objects["persistentvolumes", "pv-source"] = on(node)
    clone = samples.claim_json(dataSource={"kind": "PersistentVolumeClaim", "name": "source"})
    decision = decided(kube, Claim.of(clone, keep_whole=True))
    assert isinstance(decision, Bid) is (node == "foo"), decision


@pytest.mark.parametrize("node", ["foo", "bar"])
def test_a_source_that_leaves_is_released_at_once_by_the_node_of_its_volume_alone(node: str) -> None:
    kube = ScriptedKube()
    kube.objects["persistentvolumes", "pv-source"] = on(node)
    leaving = {"finalizers": [names.CLONE_FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    decision = decided(kube, Claim.of(samples.claim_json(meta=leaving, volumeName="pv-source"), keep_whole=True))
    assert isinstance(decision, Release) is (node == "foo"), decision


def on(node: str) -> Json:
    place = {"key": samples.KEY, "operator": "In", "values": [node]}
    return samples.volume_json(
        meta={"name": "pv-source"}, spec={"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [place]}]}}}
    )


BEGUN = CreationRecord("testid", "fake-ns", "fake-pvc", "fake-class", CreateRequest("old-testi", 100, ()), node=samples.NODE)


@pytest.mark.parametrize(
    ("record", "decision"),
    [
        pytest.param(BEGUN, CleanUp, id="under a name that it had as flags were then"),
        pytest.param(replace(BEGUN, deletion=BegunDeletion("id-old")), DeleteAgain, id="and its deletion was begun"),
        pytest.param(
            replace(BEGUN, request=CreateRequest("test-testi", 100, ()), suspect="why", deletion=BegunDeletion("id")),
            DeleteAgain,
            id="it was left to people in the middle of its deletion",
        ),
        pytest.param(replace(BEGUN, node="bar"), Create, id="on another node"),
        pytest.param(replace(BEGUN, suspect="why"), Create, id="it was left to people"),
    ],
)
def test_what_the_journal_says_of_the_claim_is_seen_to_first(tmp_path: Path, record: CreationRecord, decision: type) -> None:
    """As by the running program, whose event says so."""

    async def write() -> FileJournal:
        journal = FileJournal(tmp_path, samples.DRIVER, on_state=print)
        await journal.begin(record)
        return journal

    process = asyncio.run(write())
    parsed = parse(["--node-deployment", f"--journal-dir={tmp_path}"], {"NODE_NAME": samples.NODE})
    assert isinstance(parsed, Parsed)
    claim, here = samples.claim(selected=samples.NODE), samples.here()
    begun = _under_way(_begun(parsed.config, samples.DRIVER, claim.uid), here, claim)
    kube = ScriptedKube({("storageclasses", "fake-class"): samples.class_json()})
    facts = Facts()
    view = asyncio.run(_view(kube, here, claim=claim, facts=facts, record=begun))  # type: ignore[arg-type]
    assert isinstance(decide(view), decision) and ("under way" in facts.rows) == (decision is not Create)
    assert process.settled() == []
