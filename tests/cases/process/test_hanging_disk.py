"""A process that is told to stop while a disk neither takes nor refuses what is written: it ends by itself, and says so."""

import signal
import subprocess
import sys
from pathlib import Path

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

work = Path(sys.argv[1])
write = os.write
journals._PATIENCE = 0.3

def half(handle, data):
    write(handle, data[: len(data) // 2])
    print("hangs", flush=True)
    threading.Event().wait()

def record(uid):
    return CreationRecord(uid, "ns", uid, "fast", CreateRequest("pvc-" + uid, 1, ()))

async def live(self, doors):
    journal = journals.FileJournal(work, "driver", on_state=lambda why: None)
    assert not await journal.begin(record("whole"))
    os.write = half
    assert await journal.begin(record("half"))
    await self._stop.wait()
    await journal.close()

process._Life._live = live
logs.setup("text", 0)
words = ["--node-deployment", "--master=http://127.0.0.1:1", f"--csi-address={work}/csi.sock"]
sys.exit(process.run(parse(words, {"NODE_NAME": "n"}).config))
"""


def stopped(work: Path) -> list[str]:
    """What a process logged that was told to stop and has ended by itself."""
    said, logged = work / "said", work / "logged"
    with said.open("w") as out, logged.open("w") as err:
        child = subprocess.Popen([sys.executable, "-c", PROGRAM, str(work)], stdout=out, stderr=err, cwd=REPOSITORY)
    try:
        until(lambda: said.read_text() or child.poll() is not None, "it is at work", seconds=30)
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0, logged.read_text()
        return logged.read_text().splitlines()
    finally:
        child.kill()
        child.wait()


def test_it_ends_by_itself_says_what_it_did_not_wait_for_and_half_a_line_is_not_believed(tmp_path: Path) -> None:
    (line,) = [line for line in stopped(tmp_path) if "a disk has not answered" in line]
    assert line.startswith("W")
    (path,) = tmp_path.glob(".*journal*")
    with path.open("rb") as file:
        content = journal_lines.read_lines(file, largest=2**20, most_open=2**20)
    _, whole, half = path.read_bytes().split(b"\n")  # the first line is when it was alive
    assert b"pvc-whole" in whole and half
    assert content.begun.keys() == {"whole"}
