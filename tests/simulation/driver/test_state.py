"""The state is a fold: the same lines give the same state, and the shortest journal gives it back."""

from pathlib import Path

import pytest

from hack.sim.driver.state import Corrupt, Journal
from hack.sim.driver.state import LocalVolume, Published, State, added_target, created, read_state
from sidecar.csi.api import Capability

USE = Capability("SINGLE_NODE_WRITER", fs_type="xfs", mount_flags=("noatime",))
VOLUME = LocalVolume("node-a-vol-7", "pvc-7", "fast", 4096, 7, (USE,), {"pool": "fast"})
CHANGES = [
    {"op": "begin", "node": "node-a", "serial": 3},
    created(LocalVolume("node-a-vol-9", "pvc-9", "slow", 1, 9)),
    created(VOLUME),
    added_target(Published("/pods/a", VOLUME.id, USE, readonly=True)),
    {"op": "delete", "id": "node-a-vol-9"},
]


def test_the_shortest_journal_gives_the_same_state_and_forgets_no_number(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "state")
    for change in CHANGES:
        journal.append(change)
    state = read_state(tmp_path / "state")
    assert (state.node, state.serial, state.volumes) == ("node-a", 9, {VOLUME.id: VOLUME})
    assert state.targets(VOLUME.id) == [Published("/pods/a", VOLUME.id, USE, readonly=True)]
    journal.rewrite(state.changes())
    journal.close()
    assert read_state(tmp_path / "state") == state


@pytest.mark.parametrize("change", [{"op": "fly"}, {"op": "delete", "id": "nobody"}, {"op": "create", "volume": {"id": "x"}}])
def test_an_impossible_change_is_refused_with_its_line(tmp_path: Path, change: dict[str, object]) -> None:
    journal = Journal(tmp_path / "state")
    journal.append(CHANGES[0])
    journal.append(change)
    journal.close()
    with pytest.raises(Corrupt, match="line 2"):
        read_state(tmp_path / "state")


def test_nothing_was_ever_written(tmp_path: Path) -> None:
    assert read_state(tmp_path / "state") == State()
