"""Whether a machine is gone, and what proves that its disks do not come back: a table, and what no row may say."""

from dataclasses import replace
from typing import Any

import pytest

from sidecar.drain.machine_mark import Machine
from sidecar.drain.node_loss.evidence import Evidence, Gone, LossView, NotGone, Unproven, Unread, judge
from sidecar.drain.node_loss.spoken import No, Nothing, Yes

N1 = Machine("n1", "uid-1")
LEAVING = "n1/uid-1"
GONE = LossView("n1", N1, node_uid="", has_csi_node=False, leaving=("",), spoken=Nothing(), missed_since=100.0)


@pytest.mark.parametrize(
    ("told", "evidence"),
    [
        pytest.param({}, Evidence.NONE, id="A13 deleted before success"),
        pytest.param({"leaving": (LEAVING,)}, Evidence.ANNOUNCED, id="A13 deleted after it was announced"),
        pytest.param({"leaving": (LEAVING, LEAVING)}, Evidence.ANNOUNCED, id="announced on all volumes"),
        pytest.param({"leaving": (LEAVING, "")}, Evidence.NONE, id="an undo had reached one volume when it went"),
        pytest.param({"leaving": ()}, Evidence.NONE, id="no volume says anything"),
        pytest.param({"leaving": ("n1/uid-0",)}, Evidence.NONE, id="G1 announced for a former machine of that name"),
        pytest.param({"leaving": ("n2/uid-1",)}, Evidence.NONE, id="announced for another node"),
        pytest.param({"leaving": ("n1",)}, Evidence.NONE, id="announced in garbage"),
        pytest.param({"leaving": (f"{LEAVING}\n",)}, Evidence.NONE, id="announced with a line break"),
        pytest.param({"spoken": Yes()}, Evidence.ACKNOWLEDGED, id="acknowledged"),
        pytest.param({"spoken": Yes(), "leaving": (LEAVING,)}, Evidence.ACKNOWLEDGED, id="both"),
        pytest.param({"spoken": No("it says no"), "leaving": (LEAVING,)}, Evidence.NONE, id="announced, and a person says no"),
        pytest.param({"doubt": "2026-01-01T00:00:00Z", "leaving": (LEAVING,)}, Evidence.NONE, id="announced in a backup"),
        pytest.param({"doubt": "2026-01-01T00:00:00Z", "spoken": Yes()}, Evidence.ACKNOWLEDGED, id="acknowledged after a restore"),
    ],
)
def test_a_node_that_is_gone_and_who_says_that_its_disks_are_too(told: dict[str, Any], evidence: Evidence) -> None:
    found = judge(replace(GONE, **told))
    assert isinstance(found, Gone)
    assert (found.machine, found.evidence, found.since) == (N1, evidence, 100.0)


EVERYTHING_SPEAKS_FOR_IT = replace(GONE, leaving=(LEAVING,), spoken=Yes(), missed_since=0.0)


@pytest.mark.parametrize(
    ("there", "why"),
    [
        pytest.param({"node_uid": "uid-1"}, "Node n1 is there", id="B8 the Node is there, ready or not"),
        pytest.param({"node_uid": "uid-2"}, "another machine", id="G1 another machine under its name"),
        pytest.param({"node_uid": Unread("timeout")}, "timeout", id="the Node could not be read"),
        pytest.param({"has_csi_node": True}, "CSINode", id="its CSINode is there"),
        pytest.param({"has_csi_node": Unread("forbidden")}, "forbidden", id="the CSINode could not be read"),
        pytest.param({"machine": None, "node_uid": "uid-1"}, "another machine", id="no note, and a Node of its maker's name"),
        pytest.param({"machine": None, "has_csi_node": True}, "CSINode", id="no note, and a CSINode of its maker's name"),
    ],
)
def test_what_is_there_or_not_known_is_not_gone_whatever_else_is_said(there: dict[str, Any], why: str) -> None:
    found = judge(replace(EVERYTHING_SPEAKS_FOR_IT, **there))
    assert isinstance(found, NotGone)
    assert why in found.why


def test_volumes_that_do_not_name_their_machine_prove_nothing() -> None:
    """However long it is missed, and whatever else is written."""
    found = judge(replace(EVERYTHING_SPEAKS_FOR_IT, machine=None))
    assert isinstance(found, Unproven)
    assert "another name" in found.why


def test_G8_time_proves_nothing() -> None:
    """Clocks that differ change when it is said to be gone, and nothing else."""
    verdicts = [judge(replace(GONE, missed_since=at)) for at in (-300.0, 0.0, 1e12)]
    assert [found.evidence for found in verdicts if isinstance(found, Gone)] == [Evidence.NONE] * 3
