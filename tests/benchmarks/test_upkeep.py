"""What `hack/bench scale` says it costs the API server, for each volume, at rest and per roll."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hack.benchmarks.race.judge import Expense, Measurement
from hack.benchmarks.race.served import Served
from hack.benchmarks.scale import costs, files, report
from hack.benchmarks.scale import upkeep as upkeep_module
from hack.benchmarks.scale.upkeep import Start, Upkeep, asked_for
from hack.lib.programs import Process, all_of

SERVED = Served(
    requests=6000,
    refused=0,
    watch_events=40_000,
    watch_bytes=80_000_000,
    answer_bytes=4_000_000,
    changes={"pods": 700},
    watches={"pods": 100},
)
Built = Callable[..., Any]


def expense(seconds: float) -> Expense:
    cpu = {"instances": 3.0, "kube-apiserver": 30.0}
    return Expense(seconds=seconds, cpu=cpu, others=0.0, load=1.0, resident=[80.0], served=SERVED)


@pytest.fixture
def upkeep() -> Built:
    def build(phase: str = "rest", **changes: Any) -> Upkeep:
        figures: dict[str, Any] = {"requests": 1200, "requests_by_kind": {"list persistentvolumes": 1200}, "watches": 800}
        return Upkeep(
            **{
                "program": "ours-labelled",
                "nodes": 100,
                "instances": 100,
                "volumes": 1000,
                "expense": expense(60.0),
                **figures,
                "phase": phase,
                **changes,
            }
        )

    return build


@pytest.fixture
def measured() -> Measurement:
    figures: dict[str, Any] = {field.name: 0 for field in dataclasses.fields(Measurement)}
    known = {"program": "ours-ranked", "phase": "burst", "nodes": 100, "claims": 1000, "written": 1000, "requests": 4500, "instances": 100}
    return Measurement(**{**figures, **known, "requests_by_kind": {}, "expense": expense(100.0)})


def row_of(text: str, phase: str) -> dict[str, str]:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    (place,) = [number for number, row in enumerate(rows) if phase in row]
    heads = next(row for row in reversed(rows[:place]) if row[0] == "nodes")
    return dict(zip(heads, rows[place], strict=True))


def test_a_volume_has_its_share_of_cpu_requests_events_and_bytes(measured: Measurement) -> None:
    row = row_of(costs.tables([measured], []), "burst")
    assert (row["API server: CPU ms"], row["own requests"], row["everybody's requests"]) == ("30.0", "4.50", "6.0")
    assert (row["watch events"], row["events offered and filtered"]) == ("40", "30")
    assert (row["watches, kB"], row["answers, kB"]) == ("80.0", "4.0")


def test_a_phase_without_volumes_has_no_figures_for_each(measured: Measurement) -> None:
    assert row_of(costs.tables([dataclasses.replace(measured, written=0)], []), "burst")["watch events"] == "-"


def test_rest_is_told_by_the_second(upkeep: Built) -> None:
    row = row_of(costs.tables([], [upkeep()]), "rest")
    assert (row["volumes"], row["s"], row["own requests/s"], row["everybody's requests/s"]) == ("1000", "60", "20.00", "100.0")
    assert (row["watch events/s"], row["watches, kB/s"], row["answers, kB/s"]) == ("666.7", "1,333.3", "66.7")
    assert (row["API server: CPU, m"], row["CPU per sidecar, m"]) == ("500", "0.5")


def test_a_roll_is_told_by_the_instance_that_is_replaced(upkeep: Built) -> None:
    starts = [Start(0.5, 0.25), Start(0.7, 0.35), Start(3.0, 0.30)] + [Start(0.7, 0.30)] * 97
    row = row_of(costs.tables([], [upkeep("roll", at_once=5, starts=starts)]), "roll")
    assert (row["at once"], row["s"], row["synced p50 / max s"], row["CPU s until synced"]) == ("5", "60", "0.70 / 3.00", "0.30")
    assert (row["own requests"], row["watches ended"], row["answers, kB"], row["watches, kB"]) == ("12.0", "8.0", "40.0", "800.0")
    assert row["API server: CPU ms"] == "300"


def test_what_was_not_measured_has_no_table(upkeep: Built, measured: Measurement) -> None:
    assert costs.tables([], []) == ""
    assert "Per roll" not in costs.tables([measured], [upkeep()])


def test_an_upkeep_alone_is_a_report_too(upkeep: Built) -> None:
    asked = argparse.Namespace(rate=2.0, base_delay="", latency=0.05)
    assert report.everything(asked, [], [upkeep()]).startswith("At rest:")


PEER = 'echo \'Caches populated type="*v1.PersistentVolumeClaim" type="*v1.PersistentVolume" type="*v1.StorageClass"\''


def test_all_are_replaced_and_what_their_former_lives_have_used_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that say at once that they are synced, as the peer does."""
    instances = [Process(f"peer-{number}", ["sh", "-c", f"{PEER}; exec sleep 60"], tmp_path) for number in range(5)]
    monkeypatch.setattr(upkeep_module, "SETTLE", 0.0)
    monkeypatch.setattr(upkeep_module, "AFTERMATH", 0.0)
    monkeypatch.setattr(upkeep_module.Opening, "of", lambda scene: None)
    monkeypatch.setattr(upkeep_module, "_upkeep", lambda *_, starts, **__: starts)
    with all_of(instances):
        before = [instance.child.pid for instance in instances]
        scene: Any = SimpleNamespace(instances=instances, gone=[])
        starts = upkeep_module.roll(scene, SimpleNamespace(name="peer"), 5, volumes=0, at_once=2)
        assert [instance.child.poll() for instance in instances] == [None] * 5
        assert not {instance.child.pid for instance in instances} & {*before}
    assert (len(starts), len(scene.gone)) == (5, 5)


def test_requests_are_counted_by_kind_and_watches_by_themselves() -> None:
    events = [
        {"verb": "list", "objectRef": {"resource": "persistentvolumes"}},
        {"verb": "list", "objectRef": {"resource": "persistentvolumes"}},
        {"verb": "watch", "objectRef": {"resource": "persistentvolumes"}},
        {"verb": "get", "requestURI": "/version"},
    ]
    asked, watches = asked_for(events)
    assert (asked, watches) == ({"list persistentvolumes": 2, "get /version": 1}, 1)


def test_an_upkeep_that_was_written_is_read_again(upkeep: Built, tmp_path: Path) -> None:
    file, whole = tmp_path / "scale.json", upkeep("roll", at_once=1, starts=[Start(0.5, 0.25)])
    file.write_text(files.as_json([], [whole], argparse.Namespace(nodes=100)))
    earlier = files.read_earlier(str(file))
    assert (earlier.upkeep, earlier.measurements) == ([whole], [])
