"""What the commands of hack tell of how far they are: on stderr alone, with what they know of the time that is left."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hack.lib import durations, progress
from hack.lib.progress import Turns
from sidecar.commands.progress import Far

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CSI_NODE_SIDECAR_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["/x/hack/image"])
    return tmp_path


def test_turns_that_are_done_tell_how_long_the_others_take() -> None:
    now = [0.0]
    turns = Turns(4, "runs", clock=lambda: now[0])
    assert (turns.far().what, turns.far().share) == ("0 of 4 runs", 0.0)
    now[0] = 10.0
    turns.end()
    assert turns.far().share == 0.25 and turns.far().left(10.0) == 30.0
    now[0] = 15.0  # half of the next
    assert turns.far().share == pytest.approx(0.375) and turns.far().left(15.0) == pytest.approx(25.0)
    now[0] = 100.0  # it takes longer than the first: but it is not over
    assert turns.far().share == pytest.approx(0.4875)
    for _ in range(3):
        turns.end()
    assert turns.far().share == 1.0


def test_before_the_first_turn_is_done_the_last_time_counts() -> None:
    now = [0.0]
    turns = Turns(4, "runs", pace=10.0, clock=lambda: now[0])
    now[0] = 5.0
    assert turns.far().share == pytest.approx(0.125) and turns.far().left(5.0) == pytest.approx(35.0)


def test_a_turn_of_many_nodes_counts_more() -> None:
    now = [0.0]
    turns = Turns(40, "nodes", clock=lambda: now[0])
    now[0] = 5.0
    turns.end(10)
    assert turns.far(30).left(5.0) == 15.0


def test_each_hands_out_everything_and_remembers_the_pace(cache: Path) -> None:
    assert list(progress.each("abc", "letters")) == list("abc")
    assert set(durations._read()) == {"image letters"}
    assert list(progress.each([], "letters")) == []


def test_of_each_that_is_done_its_weight_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    asking: list[Callable[[], Far]] = []

    @contextlib.contextmanager
    def seen(ask: Callable[[], Far], *, name: str) -> Iterator[None]:
        asking.append(ask)
        yield

    monkeypatch.setattr(progress, "shown", seen)
    said = [asking[0]().what for _ in progress.each([10, 30, 60], "nodes", weight=float)]
    assert said == ["0 of 100 nodes", "10 of 100 nodes", "40 of 100 nodes"] and asking[0]().share == 1.0


def test_a_step_is_told_when_it_begins_and_when_it_is_done_and_never_on_stdout(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=iter([10.0, 13.0]).__next__))
    with progress.step("building", about=50):
        pass
    assert tuple(capsys.readouterr()) == ("", "image: building\nimage: building: done in 3 s\n")
    assert durations.of("building", otherwise=50) == 3.0


def test_a_step_that_fails_is_not_remembered() -> None:
    with pytest.raises(ZeroDivisionError), progress.step("building", about=50):
        raise ZeroDivisionError
    assert durations.of("building", otherwise=50) == 50


@pytest.mark.parametrize("content", ["", "[]", "{", '{"building": "soon"}', "null"])
def test_what_is_remembered_may_be_broken(content: str, cache: Path) -> None:
    (cache / "durations.json").write_text(content)
    assert durations.of("building", otherwise=50) == 50
    durations.remember("building", 7)
    assert durations.of("building", otherwise=50) == 7


def test_a_cache_that_cannot_be_written_is_no_failure(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "file").touch()
    monkeypatch.setenv("CSI_NODE_SIDECAR_CACHE", str(cache / "file" / "below"))
    durations.remember("building", 7)
    assert durations.of("building", otherwise=50) == 50


def test_it_needs_no_package(tmp_path: Path) -> None:
    """hack/image and hack/cluster run with the machine's own Python."""
    script = "import hack.lib.progress as p\nwith p.step('a', about=1): pass\np.say('b')"
    environ = {"PYTHONPATH": str(ROOT), "CSI_NODE_SIDECAR_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-S", "-c", script], check=True, capture_output=True, text=True, env=environ, cwd=tmp_path)
    assert done.stdout == "" and done.stderr.count("\n") == 3


def test_each_of_the_long_commands_shows_it() -> None:
    """Of those there are: the benchmarks by `each`, the rest by steps and counts."""
    commands = sorted(file for file in (ROOT / "hack/benchmarks").rglob("*.py") if "def add_to(" in file.read_text())
    assert len(commands) >= 8
    assert [file.name for file in commands if "each(" not in file.read_text() and file.parent.name != "report"] == []
    for name, how in {"hack/fire": "counted(", "hack/images/parts.py": "step(", "hack/kubelets/cluster.py": "step("}.items():
        assert how in (ROOT / name).read_text()


def test_stderr_alone_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    for _ in progress.each([1], "runs"):
        progress.say("x")
    assert out.getvalue() == ""
