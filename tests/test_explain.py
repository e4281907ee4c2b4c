"""What `explain` finds out before it decides. Against a live cluster it runs in the end-to-end tests."""

import asyncio
from dataclasses import replace

from sidecar.csi.api import MODIFY_VOLUME
from sidecar.explain.claim import Facts, _decide
from sidecar.provisioning.rules import Refuse
from sidecar.provisioning.view import ClaimView
from tests import samples
from tests.doors import ScriptedDriver, ScriptedKube


def test_what_the_decision_needs_is_fetched_and_told() -> None:
    info = samples.info()
    able = replace(info, controller=info.controller | {MODIFY_VOLUME})
    claim = samples.claim(selected="foo", volumeAttributesClassName="gold")
    view = ClaimView(now=0.0, here=samples.here(able), chance=0.5, claim=claim, class_=samples.class_(), volume=None)
    facts = Facts()
    decision = asyncio.run(_decide(ScriptedKube(), ScriptedDriver(able), view, facts))  # type: ignore[arg-type]
    assert facts.rows == {"VolumeAttributesClass gold": "VolumeAttributesClass gold does not exist"}
    assert isinstance(decision, Refuse) and "gold" in decision.why
