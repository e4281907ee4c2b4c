"""`read-drbd` as a process, with a `drbdsetup` that hangs, is cut off, lies, dies or never ends, and the sidecar's end of its socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hack.lib.patience import deadline
from hack.sim import drbdsetup
from hack.sim.drbd import Storage
from sidecar.failover import door_io, reader_io
from sidecar.failover.door_io import Door
from sidecar.failover.evidence import Fact, Snapshot, excluded

PACED = "import sidecar.failover.reader_io as r, sys; r._EVERY, r._AT_MOST_EVERY, r._LIMIT = 0.6, 0.2, 2.0; sys.exit(r.run(sys.argv[1:]))"


@dataclass
class Stage:
    folder: Path
    later: float = 0.0
    """How far the sidecar's clock is ahead: what is waited for by age alone need not be waited for."""
    words: tuple[str, ...] = ("--release",)
    child: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        storage = Storage(time.monotonic)
        storage.add("vol", disks=("a", "b"), diskless=("c",))
        storage.open("a", "vol")
        drbdsetup.create(self.file, storage)
        drbdsetup.install(self.folder, self.file, "b")

    def start(self) -> None:
        environ = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}
        command = [sys.executable, "-c", PACED, f"--listen={self.socket}", *self.words]
        with (self.folder / "log").open("ab") as log:
            self.child = subprocess.Popen(command, env=environ, stderr=log)

    @property
    def file(self) -> Path:
        return self.folder / "state"

    @property
    def socket(self) -> Path:
        return self.folder / "drbd.sock"

    def clock(self) -> float:
        return time.monotonic() + self.later

    def mode(self, **modes: str) -> None:
        with drbdsetup.held(self.file) as state:
            state.modes["b"] = modes

    @property
    def children(self) -> set[int]:
        listed = Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children")
        return {int(word) for word in listed.read_text().split()} if listed.exists() else set()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    found = Stage(tmp_path)
    found.start()
    yield found
    found.child.kill()
    found.child.wait()


@contextlib.asynccontextmanager
async def opened(stage: Stage) -> AsyncIterator[Door]:
    door = Door(stage.socket, stage.clock)
    task = asyncio.create_task(door.run())
    try:
        yield door
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(stage: Stage, door: Door, what: Callable[[Snapshot], object]) -> Snapshot:
    end = deadline()
    while not what(snapshot := door.snapshot(stage.clock())):
        assert time.monotonic() < end, (snapshot, (stage.folder / "log").read_text())
        await asyncio.sleep(0.05)
    return snapshot


async def refused(stage: Stage, door: Door, name: str, why: str) -> None:
    """It is asked for, and the reader says why it is not done; nothing was called."""
    before = len((stage.folder / "log").read_bytes())
    assert await door.release(name) == ""
    end = deadline()
    while why not in (stage.folder / "log").read_bytes()[before:].decode():
        assert time.monotonic() < end
        await asyncio.sleep(0.05)
    with drbdsetup.held(stage.file) as state:
        assert state.calls == []


def complete(snapshot: Snapshot) -> bool:
    return snapshot.complete


def proof(stage: Stage, snapshot: Snapshot) -> Fact:
    return excluded(snapshot.resources.get("vol"), "a", stage.clock())


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def test_a_change_is_seen_and_proves_what_it_proves(stage: Stage) -> None:
    async def story() -> None:
        async with opened(stage) as door:
            seen = await until(stage, door, complete)
            assert seen.resources["vol"].peers["a"].connected and not proof(stage, seen).holds
            door.changed.clear()
            with drbdsetup.held(stage.file) as state:
                state.storage.crash("a")
                state.storage._due = {pair: (0.0, lost) for pair, (_, lost) in state.storage._due.items()}  # noticed at once
            await until(stage, door, lambda snapshot: proof(stage, snapshot).holds)
            assert door.changed.is_set()

    play(story())


@pytest.mark.parametrize("command", ["dump", "status", "show"])
def test_f39_a_command_that_hangs_is_killed_and_tried_again_and_what_it_said_expires(stage: Stage, command: str) -> None:
    async def story() -> None:
        async with opened(stage) as door:
            await until(stage, door, complete)
            stage.mode(**{command: "hang"})
            await until(stage, door, lambda snapshot: snapshot.complete and "longer than" in str(door._reading._failed))
            stage.later = 12.5
            gone = await until(stage, door, lambda snapshot: not snapshot.complete)
            assert "longer than 2 s" in gone.why
            assert not proof(stage, gone).holds and (command == "show" or not gone.resources)
            assert len(stage.children) <= 5  # nothing of what was killed is left
            stage.later = 0.0
            stage.mode()
            await until(stage, door, lambda snapshot: snapshot.complete and not door._reading._failed)

    play(story())


@pytest.mark.parametrize(
    ("mode", "says"), [("truncate", "cut off"), ("die", "ended with -9"), ("loud", "prints too much"), ("absent", "ended with 20")]
)
def test_what_is_cut_off_dies_has_no_end_or_no_module_is_unknown(stage: Stage, mode: str, says: str) -> None:
    async def story() -> None:
        async with opened(stage) as door:
            await until(stage, door, complete)
            stage.mode(dump=mode, status=mode if mode != "truncate" else "", show=mode if mode != "truncate" else "")
            await until(stage, door, lambda _: says in door._reading._failed.get("events", ""))
            stage.later = 12.5
            gone = await until(stage, door, lambda snapshot: not snapshot.complete)
            assert says in gone.why and not gone.resources

    play(story())


def test_a_stream_that_ends_or_never_comes_only_slows(stage: Stage) -> None:
    async def story() -> None:
        async with opened(stage) as door:
            stage.mode(events2="die")
            await until(stage, door, complete)
            with drbdsetup.held(stage.file) as state:
                state.storage.close("a", "vol")
            await until(stage, door, lambda snapshot: snapshot.complete and snapshot.resources["vol"].may_promote)

    play(story())


def test_release_is_for_a_frozen_primary_and_its_effect_is_seen_in_the_status(stage: Stage) -> None:
    async def story() -> None:
        async with opened(stage) as door:
            assert "no reader" in await door.release("vol")
            await until(stage, door, complete)
            for name in ("vol", "other", "../vol", "--force", "vol;id", "vol\nrelease vol", "", "x" * 400):
                await refused(stage, door, name, "does not show it as Primary")
                await until(stage, door, complete)
            with drbdsetup.held(stage.file) as state:
                state.storage.close("a", "vol")
                assert state.storage.open("b", "vol")
                for peer in "ac":
                    state.storage.cut("b", peer)
                state.storage._due = {pair: (0.0, lost) for pair, (_, lost) in state.storage._due.items()}
            await until(stage, door, lambda snapshot: complete(snapshot) and snapshot.resources["vol"].suspended == {"quorum"})
            with drbdsetup.held(stage.file) as state:
                state.storage.suspend("b", "vol")
            await until(stage, door, lambda snapshot: complete(snapshot) and "user" in (snapshot.resources["vol"].suspended or ()))
            await refused(stage, door, "vol", "not by a person")
            with drbdsetup.held(stage.file) as state:
                state.storage.suspend("b", "vol", on=False)
            await until(stage, door, lambda snapshot: complete(snapshot) and snapshot.resources["vol"].suspended == {"quorum"})
            stage.mode(secondary="absent")  # its exit code is 0, and nothing was done
            assert await door.release("vol") == ""
            await asyncio.sleep(1.0)
            with drbdsetup.held(stage.file) as state:
                assert state.calls == [("b", "secondary", "--force", "vol")]
            assert (await until(stage, door, complete)).resources["vol"].suspended == {"quorum"}
            stage.mode()
            assert await door.release("vol") == ""
            await until(stage, door, lambda snapshot: complete(snapshot) and snapshot.resources["vol"].failing_io is True)
            with drbdsetup.held(stage.file) as state:
                assert state.calls == [("b", "secondary", "--force", "vol")] * 2

    play(story())


def test_f39_a_release_that_waited_behind_others_for_too_long_is_not_done(stage: Stage) -> None:
    async def story() -> None:
        async with opened(stage) as door:
            await until(stage, door, complete)
            with drbdsetup.held(stage.file) as state:
                state.storage.close("a", "vol")
                assert state.storage.open("b", "vol")
                for peer in "ac":
                    state.storage.cut("b", peer)
                state.storage._due = {pair: (0.0, lost) for pair, (_, lost) in state.storage._due.items()}
            await until(stage, door, lambda snapshot: complete(snapshot) and snapshot.resources["vol"].suspended == {"quorum"})
            door._clock = lambda: stage.clock() - 12.5
            await refused(stage, door, "vol", "too long ago")
            door._clock = stage.clock
            await until(stage, door, complete)
            assert await door.release("vol") == ""
            await until(stage, door, lambda snapshot: complete(snapshot) and snapshot.resources["vol"].failing_io is True)

    play(story())


def test_without_a_status_nothing_is_released(stage: Stage) -> None:
    async def story() -> None:
        async with opened(stage) as door:
            stage.mode(status="absent")
            await until(stage, door, lambda snapshot: "status: it ended with" in snapshot.why)
            await refused(stage, door, "vol", "the status")

    stage.child.kill()
    stage.child.wait()
    stage.mode(status="absent")
    stage.start()
    play(story())


def test_without_its_flag_nothing_is_released(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(stage) as door:
            await until(stage, door, complete)
            await refused(stage, door, "vol", "without --release")

    stage = Stage(tmp_path, words=())
    stage.start()
    try:
        play(story())
    finally:
        stage.child.kill()
        stage.child.wait()


def test_it_ends_by_sigterm_with_its_children_and_comes_back(stage: Stage) -> None:
    async def story() -> None:
        async with opened(stage) as door:
            stage.mode(show="hang")
            await until(stage, door, lambda snapshot: "vol" in snapshot.resources)
            children = stage.children
            assert children
            stage.child.terminate()
            assert stage.child.wait(30) == 0
            assert not [pid for pid in children if b"drbdsetup" in _cmdline(pid)]
            assert not stage.socket.exists()
            stage.mode()
            stage.start()
            await until(stage, door, complete)
            stage.child.kill()
            stage.child.wait()
            stage.start()  # the socket of the one before is in its way
            stage.later = 12.5
            await until(stage, door, lambda snapshot: not snapshot.complete)
            stage.later = 0.0
            await until(stage, door, lambda snapshot: snapshot.complete)

    play(story())


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_clients_are_bounded_and_other_words_end_them(stage: Stage) -> None:
    end = deadline()
    while not stage.socket.exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    assert stage.socket.stat().st_mode & 0o777 == 0o666
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(4):
            clients.append(stack.enter_context(socket.socket(socket.AF_UNIX)))
            clients[-1].settimeout(60)
            clients[-1].connect(str(stage.socket))
            assert clients[-1].recv(1)
        fifth = stack.enter_context(socket.socket(socket.AF_UNIX))
        fifth.settimeout(60)
        fifth.connect(str(stage.socket))
        assert fifth.recv(1) == b""
        for word in (b"status\n", b"release " + b"x" * 4096):
            client = clients.pop()
            client.sendall(word)
            while client.recv(1 << 20):
                pass
        assert clients[0].recv(1)


def test_it_loads_nothing_but_the_standard_library() -> None:
    script = """
import sys
from sidecar import cli
try:
    cli.main(["read-drbd", "--weather"])
except SystemExit:
    pass
assert "sidecar.failover.reader_io" in sys.modules
print(*(name for name, module in sys.modules.items() if "site-packages" in (getattr(module, "__file__", "") or "")))
print(*(name for name in sys.modules if name.startswith(("sidecar.kube", "sidecar.csi", "sidecar.drain", "sidecar.observe.metrics"))))
"""
    done = subprocess.run([sys.executable, "-S", "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


# --- a peer that is not the reader ---------------------------------------------------------------------------------------------------


def test_where_the_kernel_holds_what_was_killed_no_more_is_started(tmp_path: Path) -> None:
    class Held:
        returncode = None

    reader = reader_io.Reader(tmp_path / "drbd.sock", release=False, program="true")
    assert asyncio.run(reader._call(())) == (b"", "")
    reader._stuck = [Held() for _ in range(4)]  # type: ignore[misc]
    assert asyncio.run(reader._call(())) == (b"", "too many commands were killed and have not ended")


async def _spoken_to(folder: Path, *said: bytes, endless: bytes = b"") -> tuple[Door, int]:
    """The door after a peer has said this, and how often it was called."""
    calls, done = 0, asyncio.Event()

    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        try:
            for part in said:
                writer.write(part)
            while endless and calls == 1:
                writer.write(endless)
                await writer.drain()
        except OSError:
            pass
        writer.close()
        if calls == 2:
            done.set()

    server = await asyncio.start_unix_server(speak, folder / "drbd.sock")
    door = Door(folder / "drbd.sock", time.monotonic)
    task = asyncio.create_task(door.run())
    async with asyncio.timeout(60):
        await done.wait()
    task.cancel()
    await asyncio.wait([task])
    server.close()
    return door, calls


@pytest.mark.parametrize(
    ("said", "endless"),
    [
        ((b"events\n",), b""),
        ((b"events 1 99999999999\n",), b""),
        ((b"events 1 -5\n",), b""),
        ((b"events 999999999999999999999 9\nexists -\n",), b""),
        ((b"events 1 9\nexists",), b""),
        ((b"\xff\xfe 1 1\n",), b""),
        ((), b"x" * 65536),
        ((b"events 1 8388608\n",), b"\x00" * 65536),
        ((b"change 1 0\n" * 1000,), b""),
    ],
)
def test_a_peer_that_lies_or_never_ends_is_left_and_called_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: tuple[bytes, ...], endless: bytes
) -> None:
    monkeypatch.setattr(door_io, "_PAUSE", 0.01)
    door, calls = asyncio.run(_spoken_to(tmp_path, *said, endless=endless))
    assert calls >= 2
    snapshot = door.snapshot(time.monotonic())
    assert not snapshot.complete and not snapshot.resources and snapshot.why.startswith("no reader at")
