"""A process that is told to stop while a disk neither takes nor refuses what is written: it ends by itself, and says so."""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from hack.lib.control_plane import REPOSITORY, until
from sidecar.provisioning.creations import journal_lines

# The program as ever, but for a disk of which the thread named first never hears again, after half of what it was to write.
PROGRAM = """
import asyncio, os, sys, threading
from pathlib import Path
from sidecar import process
from sidecar.config.parse import parse
from sidecar.csi.api import CreateRequest
from sidecar.observe import logs
from sidecar.provisioning.creations import journal as journals
from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.drain.publish.last_served_io import FileLastServed

work, what = Path(sys.argv[1]), sys.argv[2]
write = os.write
journals._PATIENCE = 0.3

def half(handle, data):
    write(handle, data[: len(data) // 2])
    print("hangs", flush=True)
    threading.Event().wait()

def never(self):
    print("hangs", flush=True)
    threading.Event().wait()

def record(uid):
    return CreationRecord(uid, "ns", uid, "fast", CreateRequest("pvc-" + uid, 1, ()))

async def live(self, doors):
    if what == "journal":
        journal = journals.FileJournal(work, "driver", on_state=lambda why: None)
        assert not await journal.begin(record("whole"))
        os.write = half
        assert await journal.begin(record("half"))
        await self._stop.wait()
        await journal.close()
    elif what == "folder":
        FileLastServed._read = never
        reading = asyncio.create_task(FileLastServed(work / "csi.sock").read())
        await self._stop.wait()
        reading.cancel()
    else:
        await asyncio.to_thread(print, "works", flush=True)
        await self._stop.wait()

process._Life._live = live
logs.setup("text", 0)
words = ["--node-deployment", "--master=http://127.0.0.1:1", f"--csi-address={work}/csi.sock"]
sys.exit(process.run(parse(words, {"NODE_NAME": "n"}).config))
"""


def stopped(work: Path, what: str, *, signals: Sequence[signal.Signals] = (signal.SIGTERM,)) -> tuple[int, float, list[str]]:
    """The exit code, how long it took to end, and what it logged."""
    said, logged = work / "said", work / "logged"
    command = [sys.executable, "-c", PROGRAM, str(work), what]
    with said.open("w") as out, logged.open("w") as err:
        child = subprocess.Popen(command, stdout=out, stderr=err, cwd=REPOSITORY)
    try:
        until(lambda: said.read_text() or child.poll() is not None, "it hangs", seconds=30)
        time.sleep(0.6)
        asked = time.monotonic()
        for number in signals:
            child.send_signal(number)
        return child.wait(20), time.monotonic() - asked, logged.read_text().splitlines()
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("what", ["journal", "folder"])
def test_it_ends_by_itself_and_says_what_it_did_not_wait_for(what: str, tmp_path: Path) -> None:
    code, seconds, lines = stopped(tmp_path, what)
    assert code == 0, "\n".join(lines)
    assert seconds < 10.0
    (line,) = [line for line in lines if "a disk has not answered" in line]
    assert line.startswith("W")


def test_what_it_had_begun_to_write_is_not_believed_and_what_was_written_is(tmp_path: Path) -> None:
    assert stopped(tmp_path, "journal")[0] == 0
    (path,) = tmp_path.glob(".*journal*")
    with path.open("rb") as file:
        content = journal_lines.read_lines(file, largest=2**20, most_open=2**20)
    _, whole, half = path.read_bytes().split(b"\n")  # the first line is when it was alive
    assert b"pvc-whole" in whole and half
    assert content.begun.keys() == {"whole"}


def test_a_process_whose_disk_answers_ends_as_ever(tmp_path: Path) -> None:
    code, seconds, lines = stopped(tmp_path, "nothing")
    assert code == 0 and seconds < 2.0
    assert [line for line in lines if line.startswith(("W", "E"))] == []
