"""What `hack/bench scale` makes of what it has measured: figures, tables, the picture, and the refusal to start without room."""

from __future__ import annotations

import argparse
import dataclasses
import math
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hack.benchmarks.race import judge, load, served, stage
from hack.benchmarks.scale import command, files, plot, report

NODES = 100
PHASES = ("steady", "burst", "late")


@pytest.fixture(scope="module")
def bench() -> SimpleNamespace:
    """The modules that `hack/bench scale` is made of."""
    return SimpleNamespace(
        race_judge=judge,
        race_load=load,
        race_served=served,
        race_stage=stage,
        scale=command,
        scale_files=files,
        scale_plot=plot,
        scale_report=report,
    )


@pytest.fixture
def measured(bench: SimpleNamespace) -> Any:
    """One phase; what a test is about it says itself."""

    def build(program: str = "ours-ranked", phase: str = "burst", *, nodes: int = NODES, **changes: Any) -> Any:
        instances = 1 if program == "peer-central" else nodes
        expense = bench.race_judge.Expense(
            seconds=200.0,
            cpu={"instances": 1.0 * instances, "kube-apiserver": 50.0},
            others=0.1,
            load=2.0,
            resident=[80.0] * (instances - 1) + [90.0],
            served=bench.race_served.Served(requests=4000, refused=3, watch_events=100_000),
        )
        figures = {field.name: 0 for field in dataclasses.fields(bench.race_judge.Measurement)}
        known = {"claims": 1000, "bound": 1000, "written": 1000, "until_written": 100.0, "until_bound": 125.0, "requests": 4000}
        names = {"program": program, "phase": phase, "nodes": nodes, "instances": instances, "requests_by_kind": {}, "expense": expense}
        return bench.race_judge.Measurement(**{**figures, **known, **names, **changes})

    return build


def arguments(**changes: Any) -> argparse.Namespace:
    asked = {
        "nodes": NODES,
        "claims": 3000,
        "steady": 120,
        "rate": 2.0,
        "latency": 0.05,
        "base_delay": "",
        "phases": ("steady", "burst", "late"),
        "present": 1000,
    }
    return argparse.Namespace(**{**asked, **changes})


def row_of(table: str, start: str) -> list[str]:
    [line] = [line for line in table.splitlines() if line.startswith(f"| {start}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


# --- what is asked for ------------------------------------------------------------------------------------------------


def test_late_claims_come_with_their_nodes_in_turn_and_others_with_none(bench: SimpleNamespace) -> None:
    ranked, *_ = bench.race_stage.programs("")
    steady, burst, late = bench.scale.phases(ranked, arguments(nodes=3))
    chosen = [late.claim(number)["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] for number in range(4)]
    assert chosen == ["node-1", "node-2", "node-3", "node-1"]
    assert [phase.claim(0)["metadata"]["annotations"] for phase in (steady, burst)] == [{}, {}]
    assert late.claim(0)["spec"]["storageClassName"] != burst.claim(0)["spec"]["storageClassName"]


def test_one_provisioner_for_the_cluster_is_given_claims_of_its_drivers_node_alone(bench: SimpleNamespace) -> None:
    central = next(program for program in bench.race_stage.programs("") if program.central)
    assert bench.scale.phases(central, arguments(phases=("late",)))[0].nodes == ["node-1"]


def test_only_the_phases_that_were_asked_for_are_played(bench: SimpleNamespace) -> None:
    ranked, *_ = bench.race_stage.programs("")
    assert [phase.name for phase in bench.scale.phases(ranked, arguments(phases=("late", "burst")))] == ["burst", "late"]


def test_an_upkeep_meets_as_many_volumes_as_it_should(bench: SimpleNamespace) -> None:
    ranked, *_ = bench.race_stage.programs("")
    asked = arguments(phases=("late", "rest"), nodes=3)
    missing = bench.scale.stock(ranked, asked, bound=400)
    assert (missing.claims, missing.claim(4)["metadata"]["annotations"]) == (600, {"volume.kubernetes.io/selected-node": "node-2"})
    assert bench.scale.stock(ranked, asked, bound=1000) is None
    assert bench.scale.stock(ranked, arguments(phases=("late",)), bound=0) is None


def test_where_nodes_were_chosen_owners_have_no_times(bench: SimpleNamespace, measured: Any) -> None:
    seen = {"late-0": bench.race_load.Seen(0.0, asked=2.0, owned=1.0, bound=3.0, node="node-1")}

    def owner(phase: Any) -> float:
        judged = bench.race_judge.judge(
            "peer", phase, nodes=1, instances=1, played=bench.race_load.Played(seen), events=[], calls=[], expense=measured().expense
        )
        return float(judged.owner_max)

    assert math.isnan(owner(bench.race_load.Phase("late", "later", 1, nodes=["node-1"])))
    assert owner(bench.race_load.Phase("burst", "main", 1)) == -1.0


# --- room -------------------------------------------------------------------------------------------------------------


def test_a_turn_without_room_is_refused_with_what_it_needs_and_what_would_fit(bench: SimpleNamespace) -> None:
    ranked, *_ = bench.race_stage.programs("")
    each = bench.scale.memory_of(ranked, claims=1000)
    needed = bench.scale.SERVERS_MIB + 100 * each
    complaint = bench.scale.lack_of_memory([ranked], nodes=100, claims=1000, available=needed - 1)
    assert complaint.startswith(f"ours-ranked on 100 nodes needs {needed:.0f} MiB")
    assert complaint.endswith("room for 99 nodes")
    assert bench.scale.lack_of_memory([ranked], nodes=100, claims=1000, available=needed) == ""


def test_the_peer_needs_more_the_more_claims_there_are(bench: SimpleNamespace) -> None:
    peer = next(program for program in bench.race_stage.programs("") if program.name == "peer")
    available = 100 * 100.0 + bench.scale.SERVERS_MIB
    assert bench.scale.lack_of_memory([peer], nodes=100, claims=1000, available=available) == ""
    assert bench.scale.lack_of_memory([peer], nodes=100, claims=10_000, available=available)


def test_one_instance_needs_one_instances_room(bench: SimpleNamespace) -> None:
    central = [program for program in bench.race_stage.programs("") if program.central]
    assert bench.scale.lack_of_memory(central, nodes=1000, claims=1000, available=bench.scale.SERVERS_MIB + 100) == ""


# --- what is said -----------------------------------------------------------------------------------------------------


def test_the_table_has_rates_costs_and_the_servers_load(bench: SimpleNamespace, measured: Any) -> None:
    table = bench.scale_report.table([measured(owner_p50=0.02, owner_p99=0.1, owner_max=0.25, conflicts=500, bound=990)])
    cells = dict(zip(row_of(table, "nodes"), row_of(table, "100"), strict=True))
    assert (cells["program"], cells["claims"]) == ("csi-node-sidecar, ranked", "1000")
    assert (cells["volumes/s written"], cells["bound"]) == ("10.0", "7.9")
    assert cells["owner p50 / p99 / max s"] == "0.02 / 0.10 / 0.25"
    assert (cells["conflicts per volume"], cells["requests per volume"]) == ("0.500", "4.00")
    assert (cells["CPU per sidecar, m"], cells["CPU ms per sidecar and volume"]) == ("5", "1.01")
    assert cells["MiB per sidecar, mean / max"] == "80 / 90"
    assert (cells["API server: cores"], cells["requests/s"], cells["watch events/s"], cells["429s"]) == ("0.25", "20", "500", "3")
    assert cells["left open"] == "10"


def test_a_phase_in_which_nothing_was_made_is_told_without_numbers(bench: SimpleNamespace, measured: Any) -> None:
    nothing = measured(bound=0, written=0, until_written=math.inf, until_bound=math.inf, owner_p50=math.nan)
    cells = row_of(bench.scale_report.table([nothing]), "100")
    assert cells[4:6] == ["-", "-"]
    assert cells[6].startswith("- / ")


def test_bursts_stand_beside_the_published_figures_with_their_share_of_central(bench: SimpleNamespace, measured: Any) -> None:
    items = [measured(), measured("peer-central", until_bound=50.0), measured(phase="late", until_bound=1.0)]
    table = bench.scale_report.beside_published(items)
    assert row_of(table, "upstream's report") == ["upstream's report", "1,000", "22.0", "25.0", "0.88", "296", "13.5", "89"]
    assert row_of(table, "csi-node-sidecar, ranked, here")[2:] == ["8.0", "20.0", "0.40", "5", "1.0", "80"]
    assert "one for the cluster, here" not in table


def test_without_a_central_turn_there_is_no_share(bench: SimpleNamespace, measured: Any) -> None:
    assert row_of(bench.scale_report.beside_published([measured()]), "csi-node-sidecar, ranked, here")[3:5] == ["-", "-"]


def test_footnotes_say_how_it_was_measured(bench: SimpleNamespace, measured: Any) -> None:
    text = bench.scale_report.footnotes(arguments(base_delay="5s"), [measured()])
    for words in ("claims at 2 a second", "base delay 5s", "process of its own", "only ratios can be compared"):
        assert words in text


# --- files ------------------------------------------------------------------------------------------------------------


def test_what_was_written_is_read_again(bench: SimpleNamespace, measured: Any, tmp_path: Path) -> None:
    whole, stuck = measured(), measured("peer", until_bound=math.inf, bound=0)
    file = tmp_path / "scale.json"
    file.write_text(bench.scale_files.as_json([whole, stuck], [], arguments(json=file)))
    earlier = bench.scale_files.read_earlier(str(file))
    again, none_bound = earlier.measurements
    assert earlier.arguments["claims"] == 3000
    assert again == whole
    assert math.isnan(none_bound.until_bound)
    assert bench.scale_report.table([none_bound]) == bench.scale_report.table([stuck])


@pytest.mark.parametrize("content", [None, "no JSON", "{}", '{"measurements": [{"program": "peer"}]}'])
def test_a_file_without_measurements_is_refused(bench: SimpleNamespace, tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "scale.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(argparse.ArgumentTypeError, match=r"scale\.json holds no measurements"):
        bench.scale_files.read_earlier(str(file))


def test_rows_of_one_table_were_measured_alike(bench: SimpleNamespace) -> None:
    same, other = (
        bench.scale_files.Earlier(f"{delay}.json", {"rate": 2.0, "latency": 0.05, "base_delay": delay}, [], []) for delay in ("", "5s")
    )
    assert bench.scale.disagreement([same], arguments(nodes=3, claims=7)) == ""
    complaint = bench.scale.disagreement([same, other], arguments())
    assert complaint == "5s.json was measured with another --base-delay: 5s there, none here"


# --- the picture ------------------------------------------------------------------------------------------------------


def texts_and_bars(picture: str) -> tuple[list[str], list[float]]:
    root = ET.fromstring(picture)
    space = "{http://www.w3.org/2000/svg}"
    texts = ["".join(node.itertext()) for node in root.iter(f"{space}text")]
    return texts, [float(node.attrib["width"]) for node in root.iter(f"{space}rect") if "class" in node.attrib]


def test_the_picture_has_every_program_beside_what_was_published(bench: SimpleNamespace, measured: Any) -> None:
    programs = ("ours-ranked", "ours-random", "peer", "peer-central")
    items = [measured(name, phase) for name in programs for phase in PHASES]
    texts, bars = texts_and_bars(bench.scale_plot.draw(items, nodes=NODES))
    assert sum("published" in text for text in texts) == 5
    assert texts.count("csi-provisioner") == 5
    assert len(bars) == 6 + 4 + 4 + 5 + 5


def test_bars_are_as_long_as_their_figures(bench: SimpleNamespace, measured: Any) -> None:
    picture = bench.scale_plot.draw([measured(until_bound=40.0)], nodes=NODES)
    ours, distributed, longest = texts_and_bars(picture)[1][:3]
    assert longest == ours == bench.scale_plot.WIDTH - bench.scale_plot.LEFT - bench.scale_plot.RIGHT
    assert distributed == pytest.approx(longest * 22 / 25, abs=0.1)


def test_the_share_is_of_what_one_provisioner_does(bench: SimpleNamespace, measured: Any) -> None:
    texts, _ = texts_and_bars(bench.scale_plot.draw([measured(), measured("peer-central", until_bound=50.0)], nodes=NODES))
    share = texts[texts.index("the same, as a share of what one provisioner for the cluster does") :]
    assert share[1:5] == ["csi-node-sidecar, ranked", "0.40", "published", "0.88"]


def test_what_was_not_measured_is_not_drawn(bench: SimpleNamespace, measured: Any) -> None:
    items = [measured(phase="late"), measured(nodes=3), measured("peer-central", "late", bound=0, until_bound=math.inf)]
    texts, bars = texts_and_bars(bench.scale_plot.draw(items, nodes=NODES))
    assert [text for text in texts if "volumes" in text or "MiB" in text] == ["claims that bind late: volumes bound a second"]
    assert len(bars) == 1
