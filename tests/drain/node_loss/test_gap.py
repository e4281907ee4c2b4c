"""When nobody has looked for gone nodes for a while, and which losses are doubted because of it."""

from typing import Final

import pytest

from sidecar.drain.leases import Lease
from sidecar.drain.node_loss import gap
from sidecar.model import names, timestamps

NOW: Final = 1_800_000_000.0
LATELY, EARLIER, LONG_AGO = NOW - 300.0, NOW - gap.LONGEST, NOW - gap.LONGEST - 1.0
TEXT: Final = timestamps.to_text(NOW)
NOTED: Final = timestamps.to_text(NOW - 90_000.0)
DRIVER: Final = "local.example"


def stored(renewed: float, *, noted: str = "", version: str = "7") -> Lease:
    body = gap.body(DRIVER, namespace="kube-system", holder="uid-1/local.example", gap=noted, now=renewed, resource_version=version)
    return Lease.of(body)


@pytest.mark.parametrize(
    ("found", "before", "over"),
    [
        pytest.param(None, "", "", id="nobody has ever looked"),
        pytest.param(None, "7", TEXT, id="it was there, and is not any more"),
        pytest.param(stored(LATELY), "", "", id="somebody looks"),
        pytest.param(stored(EARLIER), "", "", id="the one that looked has died, and is followed"),
        pytest.param(stored(LONG_AGO), "", TEXT, id="nobody has looked"),
        pytest.param(stored(NOW + 600.0), "", "", id="another clock"),
        pytest.param(stored(NOW + 601.0), "", TEXT, id="in the future"),
        pytest.param(stored(LATELY, noted=NOTED), "", NOTED, id="an earlier gap"),
        pytest.param(stored(LONG_AGO, noted=NOTED), "", TEXT, id="another one"),
        pytest.param(stored(LATELY, noted="yesterday"), "", TEXT, id="garbage"),
        pytest.param(stored(LATELY, version="7"), "8", TEXT, id="versions go back"),
        pytest.param(stored(LATELY, version="9"), "8", "", id="versions go on"),
    ],
)
def test_when_the_latest_gap_was_over(found: Lease | None, before: str, over: str) -> None:
    assert gap.ended(found, before=before, now=NOW) == over


@pytest.mark.parametrize("renewed", [None, 7, "yesterday"])
def test_a_time_that_cannot_be_read_is_no_renewal(renewed: object) -> None:
    lease = Lease.of({"metadata": {"name": names.node_loss_watched(DRIVER)}, "spec": {"renewTime": str(renewed or "")}})
    assert gap.ended(lease, now=NOW) == TEXT


@pytest.mark.parametrize(
    ("over", "since", "doubted"),
    [
        ("", NOW, False),
        (TEXT, NOW - 1e6, True),
        (TEXT, NOW + gap.SETTLING, True),
        (TEXT, NOW + gap.SETTLING + 1.0, False),
    ],
)
def test_what_is_missed_around_its_end_is_doubted(over: str, since: float, doubted: bool) -> None:
    assert gap.doubt(over, missed_since=since) == (over if doubted else "")


def test_it_outlives_its_writers_node() -> None:
    assert "ownerReferences" not in gap.body(DRIVER, namespace="a", holder="b", gap="", now=NOW)["metadata"]
