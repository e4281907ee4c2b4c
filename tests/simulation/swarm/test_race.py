"""The verb: options in; a table, JSON and a picture out; the same seed, the same race."""

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.cli import main
from sidecar.config.errors import UsageError
from sidecar.simulation.swarm.options import read_options
from sidecar.simulation.swarm.race import play
from sidecar.simulation.swarm.scenario import RANDOM, RANKED, Scenario
from sidecar.simulation.world.network import Latency

FEW = ["simulate", "race", "--nodes=8", "--claims=40", "--model=thin"]


def test_the_table_tells_of_the_race(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FEW, "--placement=ranked", "--size=2Gi", "--space=1Ti,2Ti"]) == 0
    out = capsys.readouterr().out
    assert "8 nodes of 1Ti, 2Ti, 40 claims of 2Gi 25 a second, ranked" in out
    rows = {line.rpartition("  ")[0].strip(): line.split()[-1] for line in out.split("\n\n")[1].splitlines()}
    assert rows["have a volume"] == "40" and rows["conflicts per claim"] == "0.0000"


def test_a_sweep_is_a_column_for_each_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers, picture = tmp_path / "race.json", tmp_path / "race.svg"
    assert main([*FEW, "--sweep=3,10,1000", f"--json={numbers}", f"--svg={picture}"]) == 0
    found = json.loads(numbers.read_text())
    assert [item["nodes"] for item in found] == [3, 10, 1000]
    assert [item["mean"] for item in found] == sorted((item["mean"] for item in found), reverse=True)
    assert "1,000" in capsys.readouterr().out
    drawn = ElementTree.fromstring(picture.read_text())
    lines = [item for item in drawn.iter() if item.tag.endswith("polyline")]
    assert len(lines) == 4 and all(len(line.attrib["points"].split()) == 3 for line in lines)


def test_one_race_is_drawn_too(tmp_path: Path) -> None:
    picture = tmp_path / "race.svg"
    assert main([*FEW, f"--svg={picture}"]) == 0
    drawn = ElementTree.fromstring(picture.read_text())
    assert sum(item.attrib.get("class") == "bar" for item in drawn.iter()) == 8


@pytest.mark.parametrize("placement", [RANDOM, RANKED])
@pytest.mark.parametrize("model", ["thin", "full"])
def test_a_seed_is_a_race(model: str, placement: str) -> None:
    scenario = Scenario(nodes=4, claims=15, placement=placement, base_delay=2.0, restarts=1, partitions=1)
    first, again = (play(scenario, model)[0] for _ in range(2))
    assert first == again
    assert play(replace(scenario, seed=2), model)[0].latencies != first.latencies


@pytest.mark.parametrize("placement", [RANDOM, RANKED])
def test_the_real_rooms_have_trouble_too(placement: str) -> None:
    scenario = Scenario(
        nodes=10, claims=60, placement=placement, base_delay=2.0, dead=0.1, full=0.2, rolling=0.2, restarts=2, partitions=2, away=4.0
    )
    counts, summary = play(scenario, "full")
    out = {part.name for part in scenario.cast() if not part.usable}
    assert summary.bound == 60 and not summary.fits
    assert len(out) == 3 and not any(counts.volumes[name] for name in out)


def test_up_to_three_hundred_nodes_the_real_rooms_run() -> None:
    models = [read_options(words).model_of(read_options(words).scenarios[0]) for words in ([], ["--nodes=300"], ["--nodes=301"])]
    assert models == ["full", "full", "thin"]
    fixed = read_options(["--window=7ms"])
    assert fixed.model_of(fixed.scenarios[0]) == "thin"


def test_options_become_a_scenario() -> None:
    words = "--burst --base-delay=1s --watch=20ms/1s --write=5ms --full=0.1 --no-figures --seed=7"
    (scenario,) = read_options(words.split()).scenarios
    wanted = Scenario(burst=True, base_delay=1.0, watch=Latency(0.02, 1.0), write=Latency(0.005, 0.005), full=0.1, figures=False, seed=7)
    assert scenario == wanted


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--nodes=0", "at least one node"),
        ("--nodes=many", "many"),
        ("--sweep=3,x", "'x'"),
        ("--sweep=3,0", "at least one node"),
        ("--claims=0", "at least one claim"),
        ("--rate=0", "more than none a second"),
        ("--placement=best", "'best'"),
        ("--base-delay=5", "its unit is missing"),
        ("--watch=200ms/10ms", "cannot be below the median"),
        ("--space=1Zi", "1Zi"),
        ("--size=0", "ask for some space"),
        ("--dead=1.5", "between 0 and 1"),
        ("--dead=0.6 --full=0.6", "more than there are"),
        ("--restarts=-1", "less than never"),
        ("--server-events=-1", "serves something"),
        ("--server-requests=0.0", "serves something"),
        ("--server-events=9 --model=thin", "--server-events needs --model=full"),
        ("--window=7ms --model=full", "--window needs --model=thin"),
        ("--no-such-thing", "--no-such-thing"),
        ("--svg=/no/such/folder/plot.svg", "--svg: /no/such/folder/plot.svg cannot be written"),
        ("--json=/", "--json: / cannot be written"),
    ],
)
def test_bad_options_are_named(words: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_options(words.split())
    assert said in str(raised.value)


def test_all_that_is_wrong_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "race", "--rate=0", "--claims=0"]) == 2
    err = capsys.readouterr().err
    assert "at least one claim" in err and "more than none a second" in err and "simulate race --help" in err


@pytest.mark.parametrize("words", [["simulate"], ["simulate", "storm"]])
def test_simulate_says_how_it_is_used(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "simulate race" in capsys.readouterr().err
