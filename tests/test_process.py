"""The last moments of the process. Its life is tested on real control planes."""

import subprocess
import sys

LAST_MOMENTS = """
import asyncio, os, signal
from sidecar.process import hear_no_more

async def main():
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, print, "heard")
    hear_no_more()
    os.kill(os.getpid(), signal.SIGTERM)

asyncio.run(main())
os.kill(os.getpid(), signal.SIGTERM)
os.kill(os.getpid(), signal.SIGINT)
print("ends by itself")
"""


def test_a_signal_that_comes_when_all_is_done_is_not_heard() -> None:
    done = subprocess.run([sys.executable, "-c", LAST_MOMENTS], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends by itself\n", "")
