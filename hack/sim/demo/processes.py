"""The programs that the demo runs: each a child process with its output in a file, that does not outlive the demo."""

import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import sidecar
from sidecar.frozen import frozen

_PACKAGES: Final = Path(sidecar.__file__).resolve().parents[1]
_SECONDS_TO_STOP: Final = 5.0
_PR_SET_PDEATHSIG: Final = 1


class Program:
    """One command, which may be started again after it was killed."""

    def __init__(self, name: str, arguments: Sequence[str], work: Path, *, environ: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log = work / f"{name}.log"
        self._command = [sys.executable, "-m", *arguments]
        # HOME keeps somebody's own ~/.kube out of it, and the rest of their environment too.
        self._environ = {"PATH": os.environ.get("PATH", ""), "HOME": str(work), "PYTHONPATH": str(_PACKAGES), **(environ or {})}
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                self._command,
                cwd=self.log.parent,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which then stops everybody in order
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one system call, looked up beforehand: nothing to deadlock on
            )
        return self

    def kill(self) -> None:
        """kill -9; returns when it is gone."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def ask_to_stop(self) -> None:
        if self._child is not None:
            self._child.terminate()

    def wait(self, seconds: float) -> None:
        """Then insist."""
        try:
            if self._child is not None:
                self._child.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            pass
        self.kill()

    def ended_with(self) -> int | None:
        """The exit code of one that ended by itself; None while it runs, and for one that was told to end."""
        return None if self._child is None else self._child.poll()

    def last_words(self, count: int = 5) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-count:])


@frozen
class Node:
    """One node: its driver, its sidecar, and the files in which the driver keeps what it knows."""

    name: str
    pool: int
    socket: Path
    state: Path
    calls: Path
    faults: Path
    port: int
    driver: Program
    sidecar: Program


def node(name: str, pool: int, work: Path, *, driver: str, key: str, kubeconfig: Path, namespace: str) -> Node:
    """Nothing runs yet."""
    files = {kind: work / f"{name}.{kind}" for kind in ("sock", "state", "calls", "faults")}
    port = _free_port()
    driver_arguments = [
        "hack.sim.driver.serve",
        *(f"--endpoint={files['sock']}", f"--name={driver}", f"--node-id={name}", f"--topology={key}={name}", f"--pool=main={pool}"),
        *(f"--state={files['state']}", f"--calls={files['calls']}", f"--faults={files['faults']}"),
    ]
    # Short delays, since three contenders make no crowd, and no limits, since a minute is not the time to be modest.
    sidecar_arguments = [
        *("sidecar", "--node-deployment", f"--csi-address={files['sock']}", f"--kubeconfig={kubeconfig}", "-v=4"),
        *("--node-deployment-base-delay=1s", "--node-deployment-max-delay=3s", f"--http-endpoint=127.0.0.1:{port}"),
        *("--enable-capacity", "--capacity-ownerref-level=-1", "--capacity-poll-interval=5s"),
        *("--kube-api-qps=-1", "--kube-api-capacity-qps=-1", "--shutdown-timeout=3s"),
    ]
    environ = {"NODE_NAME": name, "NAMESPACE": namespace}
    return Node(
        name=name,
        pool=pool,
        socket=files["sock"],
        state=files["state"],
        calls=files["calls"],
        faults=files["faults"],
        port=port,
        driver=Program(f"driver-{name}", driver_arguments, work),
        sidecar=Program(f"sidecar-{name}", sidecar_arguments, work, environ=environ),
    )


def stop(programs: Iterable[Program]) -> None:
    """Ask all at once, then insist."""
    asked = list(programs)
    for program in asked:
        program.ask_to_stop()
    deadline = time.monotonic() + _SECONDS_TO_STOP
    for program in asked:
        program.wait(deadline - time.monotonic())


def connects(path: Path) -> bool:
    """Whether somebody listens on this unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def page(port: int, path: str) -> tuple[int, str]:
    """Status and body of a page on loopback; status 0 when nobody listens."""
    # Without the empty ProxyHandler a proxy from the environment would be asked for 127.0.0.1.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def _free_port() -> int:
    """Below those for outgoing connections: one of those may be taken before it is listened on."""
    for port in random.sample(range(10000, 30000), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no free port among a hundred between 10000 and 30000")


def _death_wish() -> Callable[[], None] | None:
    """On Linux children can be told to die with us even if we are killed with -9; elsewhere they are stopped in order only."""
    if sys.platform != "linux":
        return None
    # Looked up here because loading a library between fork and exec is not safe.
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def die_with_parent() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return die_with_parent


_die_with_parent: Final = _death_wish()
