"""The table of mounts is read as the kernel means it."""

from pathlib import Path

import pytest

from hack.sim.driver.mount_table import Origin, covering, mounted_at, origin, parse_table

TABLE = parse_table(
    r"""21 98 0:20 / /sys rw,nosuid - sysfs sysfs rw
98 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw
30 98 8:1 /data/a\040folder /pods/with\134slash rw,noatime shared:1 - ext4 /dev/root rw
31 98 8:1 /data/vol-1 /pods/one ro,relatime master:7 - ext4 /dev/root rw
32 98 8:2 / /pods rw shared:3 - xfs /dev/late rw
33 32 8:1 /data/vol-2 /pods/two rw - ext4 /dev/root rw
34 33 8:1 /data/vol-3//deleted /pods/two rw - ext4 /dev/root rw
"""
)


def test_a_line_is_read_with_its_escapes() -> None:
    assert (TABLE[2].root, TABLE[2].place, TABLE[2].device) == ("/data/a folder", Path(r"/pods/with\slash"), "8:1")
    assert TABLE[3].readonly and not TABLE[2].readonly


@pytest.mark.parametrize(
    ("path", "found"),
    [
        pytest.param("/", 98, id="the root itself"),
        pytest.param("/sys/fs", 21, id="under a mount"),
        pytest.param("/system", 98, id="a name that only begins like one"),
        pytest.param("/pods/one", 32, id="hidden under a later mount of the folder above"),
        pytest.param("/pods/two/deep", 34, id="the uppermost of two at one place"),
    ],
)
def test_a_path_lies_on_the_mount_that_one_gets_to_see(path: str, found: int) -> None:
    assert covering(TABLE, Path(path)).id == found


def test_only_a_place_of_a_mount_is_mounted() -> None:
    assert mounted_at(TABLE, Path("/pods/one")) is None
    at_two = mounted_at(TABLE, Path("/pods/two"))
    assert at_two is not None
    assert at_two.origin == Origin("8:1", "/data/vol-3"), "a removed folder keeps its name"


def test_two_ways_to_one_folder_have_one_origin() -> None:
    assert origin(TABLE, Path("/data/vol-1/sub")) == Origin("8:1", "/data/vol-1/sub")
    assert origin(TABLE, Path("/pods/file")) == Origin("8:2", "/file")
    assert Origin("8:1", "/data").holds(Origin("8:1", "/data/vol-1")) and not Origin("8:1", "/dat").holds(Origin("8:1", "/data"))


def test_this_process_can_be_read() -> None:
    table = parse_table(Path("/proc/self/mountinfo").read_text())
    assert mounted_at(table, Path("/proc")) is not None
