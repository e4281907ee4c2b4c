"""Volumes that are real: what is mounted, what lies on the disk and what the journal says agree, wherever the driver is killed.

The same promises are kept with a table that mounts nothing and, in a mount namespace of its own, with the kernel's mounts.
"""

import ctypes
import errno
import functools
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hack.sim.driver.folders import Folders
from hack.sim.driver.local_driver import LocalDriver
from hack.sim.driver.mounts import KernelMounts, Mounts
from hack.sim.driver.spec import MIB, Spec
from hack.sim.driver.state import read_state
from sidecar.csi.api import Capability, CapacityQuery
from sidecar.csi.outcome import Code, DriverError
from tests.harness.driver.calls import WRITER, refusal, wanted
from tests.harness.mounting import FakeMounts, namespaces_or_skip, own_namespace

KERNEL = "CSI_TEST_KERNEL_MOUNTS" in os.environ
with_the_kernel = pytest.mark.skipif(not KERNEL, reason="only real mounts show anything")


class Machine:
    """One folder of volumes and its journal, and the mounts beside them."""

    def __init__(self, folder: Path, mounts: Mounts) -> None:
        self.mounts = mounts
        self.roof, self.journal, self.pods = folder / "volumes", folder / "journal", folder / "pods"
        self.pods.mkdir()

    def driver(self, **spec: Any) -> LocalDriver:
        folders = Folders(self.roof, node_id="node-a", mounts=self.mounts, fsync=False)
        return LocalDriver(Spec(**{"node_id": "node-a", "pools": {"main": 100 * MIB}, **spec}), state=self.journal, backing=folders)

    def shown(self) -> dict[str, tuple[str, bool]]:
        """Each place in pods: the last part of what is shown there, and whether it is read-only."""
        own = [mount for mount in self.mounts.table() if mount.place.is_relative_to(self.pods)]
        return {mount.place.name: (Path(mount.root).name, mount.readonly) for mount in own}

    def reboot(self) -> None:
        for mount in reversed(self.mounts.table()):
            if mount.place.is_relative_to(self.pods):
                self.mounts.unmount(mount.place)

    def on_disk(self) -> list[str]:
        return sorted(path.name for path in self.roof.iterdir())


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path, KernelMounts() if KERNEL else FakeMounts())
    yield machine
    machine.reboot()


@pytest.mark.slow
@pytest.mark.skipif(KERNEL, reason="this is the inner run")
def test_the_kernel_keeps_the_same_promises(tmp_path: Path) -> None:
    namespaces_or_skip()
    inner = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'inner'}", __file__]
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "CSI_TEST_KERNEL_MOUNTS": "1"}
    done = subprocess.run(own_namespace(*inner), cwd=root, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout.splitlines()[-1])


def test_a_volume_is_a_folder_anybody_may_write_to_and_goes_with_what_is_in_it(machine: Machine) -> None:
    driver = machine.driver()
    volume = driver.create(wanted()).volume_id
    assert machine.on_disk() == [volume]
    assert (machine.roof / volume).stat().st_mode & 0o777 == 0o777
    (machine.roof / volume / "deep").mkdir()
    (machine.roof / volume / "deep" / "file").write_text("data")
    for _ in range(2):
        driver.delete(volume)
    assert machine.on_disk() == []


def test_publishing_mounts_and_unpublishing_leaves_nothing(machine: Machine) -> None:
    driver = machine.driver()
    volume = driver.create(wanted()).volume_id
    for _ in range(2):
        driver.publish(volume, str(machine.pods / "pod"), capability=WRITER)
    assert machine.shown() == {"pod": (volume, False)}
    assert refusal(driver.delete, volume) is Code.FAILED_PRECONDITION
    for _ in range(2):
        driver.unpublish(volume, str(machine.pods / "pod"))
    assert (machine.shown(), list(machine.pods.iterdir())) == ({}, [])
    driver.delete(volume)
    driver.unpublish(volume, str(machine.pods / "never"))


@with_the_kernel
def test_what_a_pod_writes_is_in_the_volume(machine: Machine) -> None:
    driver = machine.driver()
    volume = driver.create(wanted()).volume_id
    driver.publish(volume, str(machine.pods / "writer"), capability=WRITER)
    driver.publish(volume, str(machine.pods / "reader"), capability=WRITER, readonly=True)
    (machine.pods / "writer" / "file").write_text("data")
    assert (machine.pods / "reader" / "file").read_text() == "data"
    with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
        (machine.pods / "reader" / "other").touch()
    total, used = driver.stats(volume, str(machine.pods / "writer"))
    assert (total, 0 < used <= MIB) == (MIB, True)


@with_the_kernel
def test_a_readonly_mount_keeps_the_other_flags(machine: Machine, tmp_path: Path) -> None:
    # The volumes lie on a file system of their own, which is mounted nosuid: a mount of a part of it must not lift that.
    machine.roof.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nosuid,nodev,size=8m", "none", str(machine.roof)], check=True)
    try:
        driver = machine.driver()
        volume = driver.create(wanted()).volume_id
        driver.publish(volume, str(machine.pods / "pod"), capability=WRITER, readonly=True)
        (shown,) = [mount for mount in machine.mounts.table() if mount.place.parent == machine.pods]
        assert shown.options >= {"ro", "nosuid", "nodev"}
        driver.unpublish(volume, str(machine.pods / "pod"))
        driver.close()
    finally:
        subprocess.run(["umount", str(machine.roof)], check=True)


@with_the_kernel
def test_a_volume_in_use_is_not_unmounted(machine: Machine) -> None:
    driver = machine.driver()
    volume, target = driver.create(wanted()).volume_id, machine.pods / "pod"
    driver.publish(volume, str(target), capability=WRITER)
    with (target / "file").open("w"):
        assert refusal(driver.unpublish, volume, str(target)) is Code.INTERNAL
        assert machine.shown() == {"pod": (volume, False)}
    driver.unpublish(volume, str(target))


def test_read_only_is_kept_and_not_mixed_up(machine: Machine) -> None:
    driver = machine.driver()
    volume, target = driver.create(wanted()).volume_id, str(machine.pods / "pod")
    for _ in range(2):
        driver.publish(volume, target, capability=WRITER, readonly=True)
    assert machine.shown() == {"pod": (volume, True)}
    assert refusal(driver.publish, volume, target, capability=WRITER) is Code.ALREADY_EXISTS
    machine.journal.write_text("".join(line + "\n" for line in machine.journal.read_text().splitlines() if '"publish"' not in line))
    assert "read-only" in told(lambda: machine.driver().publish(volume, target, capability=WRITER))


def test_what_is_mounted_there_already_is_told_and_left_alone(machine: Machine, tmp_path: Path) -> None:
    driver = machine.driver()
    volume, target = driver.create(wanted()).volume_id, machine.pods / "pod"
    (tmp_path / "other").mkdir()
    target.mkdir()
    machine.mounts.bind(tmp_path / "other", target)
    assert "/other" in told(lambda: driver.publish(volume, str(target), capability=WRITER))
    assert "/other" in told(lambda: driver.unpublish(volume, str(target)))
    assert machine.shown() == {"pod": ("other", False)}
    assert read_state(machine.journal).published == {}


def test_a_target_with_something_in_it_is_not_covered_and_not_removed(machine: Machine) -> None:
    driver = machine.driver()
    volume, target = driver.create(wanted()).volume_id, machine.pods / "pod"
    target.mkdir()
    (target / "precious").write_text("data")
    assert "not empty" in told(lambda: driver.publish(volume, str(target), capability=WRITER))
    assert refusal(driver.unpublish, volume, str(target)) is Code.INTERNAL
    assert (machine.shown(), (target / "precious").read_text()) == ({}, "data")


def test_a_target_without_the_folder_around_it_is_an_error(machine: Machine) -> None:
    driver = machine.driver()
    volume = driver.create(wanted()).volume_id
    assert refusal(driver.publish, volume, str(machine.pods / "no" / "pod"), capability=WRITER) is Code.INTERNAL


def test_a_target_behind_a_link_is_found_again(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(machine.pods)
    driver = machine.driver()
    volume = driver.create(wanted()).volume_id
    for _ in range(2):
        driver.publish(volume, str(tmp_path / "link" / "pod"), capability=WRITER)
    assert machine.shown() == {"pod": (volume, False)}
    driver.unpublish(volume, str(tmp_path / "link" / "pod"))
    assert machine.shown() == {}


def test_after_a_reboot_it_is_published_again_with_its_data(machine: Machine) -> None:
    driver = machine.driver()
    volume, target = driver.create(wanted()).volume_id, str(machine.pods / "pod")
    driver.publish(volume, target, capability=WRITER)
    (machine.roof / volume / "file").write_text("data")
    driver.close()
    machine.reboot()
    driver = machine.driver()
    assert read_state(machine.journal).published == {}
    driver.publish(volume, target, capability=WRITER, readonly=True)
    assert machine.shown() == {"pod": (volume, True)}
    assert (machine.roof / volume / "file").read_text() == "data"


def test_a_volume_whose_mounts_ended_with_the_machine_can_be_deleted(machine: Machine) -> None:
    driver = machine.driver()
    volume = driver.create(wanted()).volume_id
    driver.publish(volume, str(machine.pods / "pod"), capability=WRITER)
    driver.close()
    machine.reboot()
    machine.driver().delete(volume)
    assert machine.on_disk() == []


def test_a_mount_that_somebody_took_away_is_no_use_any_more(machine: Machine) -> None:
    driver = machine.driver()
    first, second = (driver.create(wanted(f"pvc-{number}")).volume_id for number in range(2))
    target = str(machine.pods / "pod")
    driver.publish(first, target, capability=WRITER)
    machine.reboot()
    driver.publish(second, target, capability=WRITER)
    assert machine.shown() == {"pod": (second, False)}
    driver.delete(first)
    assert set(read_state(machine.journal).published) == {target}
    machine.reboot()
    driver.delete(second)
    assert read_state(machine.journal).published == {}


def test_a_restarted_driver_finds_its_mounts(machine: Machine) -> None:
    driver = machine.driver()
    volume, target = driver.create(wanted()).volume_id, str(machine.pods / "pod")
    driver.publish(volume, target, capability=WRITER)
    driver.close()
    driver = machine.driver()
    driver.publish(volume, target, capability=WRITER)
    assert machine.shown() == {"pod": (volume, False)}
    assert driver.stats(volume, target)[0] == MIB
    driver.unpublish(volume, target)
    assert machine.shown() == {}


def test_the_kernel_is_asked_whether_a_volume_is_in_use(machine: Machine) -> None:
    """The kubelet mounts parts of a volume elsewhere (subPath): no call tells the driver of that."""
    driver = machine.driver()
    volume, place = driver.create(wanted()).volume_id, machine.pods / "subpath"
    (machine.roof / volume / "part").mkdir()
    place.mkdir()
    machine.mounts.bind(machine.roof / volume / "part", place)
    assert str(place) in told(lambda: driver.delete(volume), Code.FAILED_PRECONDITION)
    machine.mounts.unmount(place)
    driver.delete(volume)


@pytest.mark.parametrize(
    "use",
    [Capability("SINGLE_NODE_WRITER", block=True), Capability("SINGLE_NODE_WRITER", mount_flags=("noatime",))],
    ids=["block", "flags"],
)
def test_what_a_folder_cannot_be_is_refused_with_a_reason(machine: Machine, use: Capability) -> None:
    driver = machine.driver()
    assert "a volume here is a folder" in told(lambda: driver.create(wanted(capabilities=(use,))), Code.INVALID_ARGUMENT)
    volume = driver.create(wanted()).volume_id
    assert "a volume here is a folder" in told(
        lambda: driver.publish(volume, str(machine.pods / "pod"), capability=use), Code.INVALID_ARGUMENT
    )
    assert driver.validate(volume, (use,))
    assert driver.get_capacity(CapacityQuery({}, None, (use,))).available == 0
    assert machine.on_disk() == [volume]


# ---- space ----


def test_without_a_budget_there_is_what_the_file_system_has_less_what_is_promised(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=10 * MIB // 4096, f_frsize=4096))
    driver = machine.driver(measured=True)
    volume = driver.create(wanted(required=4 * MIB)).volume_id
    assert driver.get_capacity(CapacityQuery()).available == 6 * MIB
    # What is written the file system has taken off already (here it has not: the figure is a fixed one).
    (machine.roof / volume / "deep").mkdir()
    (machine.roof / volume / "deep" / "file").write_bytes(b"x" * MIB)
    assert 7 * MIB <= driver.get_capacity(CapacityQuery()).available < 7 * MIB + 64 * 1024
    (machine.roof / volume / "more").write_bytes(b"x" * 4 * MIB)
    assert driver.get_capacity(CapacityQuery()).available == 10 * MIB, "what is written beyond the promise gives nothing back"
    assert refusal(driver.create, wanted("pvc-2", 11 * MIB)) is Code.RESOURCE_EXHAUSTED
    assert driver.get_capacity(CapacityQuery({"pool": "none"})).available == 0


def test_with_a_budget_the_disk_is_not_asked(machine: Machine) -> None:
    driver = machine.driver(pools={"main": 10**18})
    assert driver.get_capacity(CapacityQuery()).available == 10**18


def test_usage_never_exceeds_the_size(machine: Machine) -> None:
    driver = machine.driver()
    volume, target = driver.create(wanted()).volume_id, str(machine.pods / "pod")
    driver.publish(volume, target, capability=WRITER)
    assert driver.stats(volume, target)[1] < 64 * 1024
    (machine.roof / volume / "file").write_bytes(b"x" * 2 * MIB)
    assert driver.stats(volume, target) == (MIB, MIB)


# ---- crashes ----


class Killed(BaseException):
    """The driver is gone. No `except` of its own may notice."""


def _story(driver: LocalDriver, told_of: dict[str, Any], pods: Path) -> None:
    """What it was answered, it was told of."""
    for name in ("pvc-1", "pvc-2"):
        told_of[name] = driver.create(wanted(name)).volume_id
    told_of["deleting"] = told_of.pop("pvc-1")
    driver.delete(told_of["deleting"])
    told_of["deleted"] = told_of.pop("deleting")
    driver.publish(told_of["pvc-2"], str(pods / "pod"), capability=WRITER, readonly=True)
    driver.unpublish(told_of["pvc-2"], str(pods / "pod"))
    told_of["end"] = "reached"


def _mortal(monkeypatch: pytest.MonkeyPatch, machine: Machine, steps: int) -> None:
    """Every change of the world is a step; the driver is killed before the step with this number."""
    count = itertools.count()

    def step(change: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(change)
        def counted(*args: Any, **kwargs: Any) -> Any:
            if next(count) >= steps:
                raise Killed
            return change(*args, **kwargs)

        return counted

    monkeypatch.setattr(os, "write", step(os.write))
    monkeypatch.setattr(shutil, "rmtree", step(shutil.rmtree))
    for name in ("mkdir", "rmdir", "rename", "chmod"):
        monkeypatch.setattr(Path, name, step(getattr(Path, name)))
    for name in ("bind", "make_readonly", "unmount"):
        monkeypatch.setattr(machine.mounts, name, step(getattr(machine.mounts, name)))


@pytest.mark.parametrize("rebooted", [False, True], ids=["killed", "rebooted"])
def test_wherever_it_is_killed_journal_folders_and_mounts_agree_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, rebooted: bool
) -> None:
    for steps in itertools.count():
        shutil.rmtree(machine.roof, ignore_errors=True)
        machine.journal.unlink(missing_ok=True)
        told_of: dict[str, Any] = {}
        driver = machine.driver()
        with monkeypatch.context() as patch:
            _mortal(patch, machine, steps)
            try:
                _story(driver, told_of, machine.pods)
            except Killed:
                pass
        driver.close()
        if rebooted:
            machine.reboot()
        _agrees(machine, told_of)
        if "end" in told_of:
            assert steps > 12, "the story has fewer steps than it must have: some are not counted"
            return


def _agrees(machine: Machine, told_of: dict[str, Any]) -> None:
    driver = machine.driver()
    volumes = {volume.name: volume.id for volume in driver.volumes()}
    assert machine.on_disk() == sorted(volumes.values())
    assert read_state(machine.journal).volumes.keys() == set(volumes.values())
    assert driver.findings == ()
    for name in ("pvc-1", "pvc-2"):
        if name in told_of:
            assert volumes[name] == told_of[name], "a volume somebody was told of is there"
    assert told_of.get("deleted") not in volumes.values()
    # Whoever was not answered asks again, and gets on.
    second = driver.create(wanted("pvc-2")).volume_id
    driver.publish(second, str(machine.pods / "pod"), capability=WRITER, readonly=True)
    assert machine.shown() == {"pod": (second, True)}
    driver.unpublish(second, str(machine.pods / "pod"))
    for volume in driver.volumes():
        driver.delete(volume.id)
    assert (machine.on_disk(), machine.shown()) == ([], {})
    driver.close()


def test_a_deletion_that_cannot_be_ended_is_ended_by_the_next_call(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = machine.driver()
    volume = driver.create(wanted()).volume_id

    def stuck(_: Path) -> None:
        raise OSError(errno.EPERM, "immutable")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", stuck)
        assert refusal(driver.delete, volume) is Code.INTERNAL
    driver.delete(volume)
    assert machine.on_disk() == []


def test_a_state_that_cannot_be_written_is_no_folder(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = machine.driver()

    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        assert refusal(driver.create, wanted()) is Code.INTERNAL
    assert machine.on_disk() == []
    driver.create(wanted())


def test_a_mount_that_cannot_be_made_readonly_is_none(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = machine.driver()
    volume = driver.create(wanted()).volume_id

    def never(_: object) -> None:
        raise OSError(errno.EPERM, "no")

    with monkeypatch.context() as patch:
        patch.setattr(machine.mounts, "make_readonly", never)
        assert refusal(driver.publish, volume, str(machine.pods / "pod"), capability=WRITER, readonly=True) is Code.INTERNAL
    assert machine.shown() == {}
    driver.publish(volume, str(machine.pods / "pod"), capability=WRITER)


def test_a_lost_folder_is_told_and_its_volume_can_still_be_deleted(machine: Machine) -> None:
    driver = machine.driver()
    volume = driver.create(wanted()).volume_id
    driver.close()
    (machine.roof / volume).rmdir()
    driver = machine.driver()
    assert [volume in finding and "lost" in finding for finding in driver.findings] == [True]
    assert "lost" in told(lambda: driver.publish(volume, str(machine.pods / "pod"), capability=WRITER))
    driver.delete(volume)
    assert driver.volumes() == ()


def test_data_without_a_journal_is_told_left_alone_and_never_given_to_somebody_else(machine: Machine) -> None:
    driver = machine.driver()
    volume = driver.create(wanted()).volume_id
    (machine.roof / volume / "precious").write_text("data")
    (machine.roof / "foreign").mkdir()
    driver.close()
    machine.journal.unlink()
    driver = machine.driver()
    assert [volume in finding for finding in driver.findings] == [True]
    other = driver.create(wanted("pvc-2")).volume_id
    driver.delete(volume)
    assert machine.on_disk() == sorted(["foreign", volume, other])
    assert (machine.roof / volume / "precious").read_text() == "data"


@pytest.mark.parametrize("volume", ["../journal", "..", "foreign", "node-b-vol-1"])
def test_an_id_that_is_none_of_ours_touches_nothing(machine: Machine, volume: str) -> None:
    driver = machine.driver()
    machine.roof.joinpath(".deleted-foreign").mkdir()
    machine.roof.joinpath(".deleted-node-b-vol-1").mkdir()
    before = machine.on_disk()
    driver.delete(volume)
    driver.unpublish(volume, str(machine.pods / "pod"))
    assert refusal(driver.publish, volume, str(machine.pods / "pod"), capability=WRITER) is Code.NOT_FOUND
    assert machine.on_disk() == before


def test_a_node_id_that_is_no_name_of_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="slash"):
        Folders(tmp_path, node_id="zone/node", mounts=FakeMounts())


def test_without_the_right_to_mount_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_permitted(*_: object) -> int:
        ctypes.set_errno(errno.EPERM)
        return -1

    mounts = KernelMounts()
    monkeypatch.setattr(mounts, "_libc", SimpleNamespace(mount=not_permitted, umount2=not_permitted))
    with pytest.raises(OSError, match=r"mounting /a at /b: .*privileged"):
        mounts.bind(Path("/a"), Path("/b"))
    with pytest.raises(OSError, match="unmounting /b"):
        mounts.unmount(Path("/b"))


def told(act: Callable[[], object], code: Code = Code.INTERNAL) -> str:
    with pytest.raises(DriverError) as caught:
        act()
    assert caught.value.code is code
    return caught.value.message
