"""One decision, told in the same words everywhere."""

import logging

import pytest

from sidecar.observe.decisions import Decisions
from sidecar.observe.logs import V
from sidecar.observe.metrics import Metrics
from sidecar.observe.narrator import Narrator
from sidecar.provisioning.decisions import Ignore


def test_metric_log_line_and_debug_page_say_the_same(caplog: pytest.LogCaptureFixture) -> None:
    decisions, metrics = Decisions(), Metrics("test")
    with caplog.at_level(V(4), logger="sidecar"):
        Narrator(decisions, metrics, lambda: 7.0).note("provisioning", "uid", "ns/name", Ignore("bound"))
    (row,) = decisions.rows()
    assert (row["decision"], row["why"], row["name"], row["time"]) == ("Ignore", "bound", "ns/name", 7.0)
    assert 'csi_node_sidecar_decisions_total{decision="Ignore",room="provisioning"} 1.0' in metrics.render()[0].decode()
    fields = caplog.records[0].__dict__["fields"]
    assert (fields["decision"], fields["why"], fields["object"]) == ("Ignore", "bound", "ns/name")


def test_nothing_is_written_when_nobody_reads(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="sidecar"):
        Narrator(Decisions(), Metrics("test"), lambda: 7.0).note("provisioning", "uid", "ns/name", Ignore("bound"))
    assert caplog.records == []
