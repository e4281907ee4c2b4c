"""One suite, run through `kube.client` against every server that claims to be an API server.

Tests here may be coroutines; they are run on the loop of the fixture `runner`. A server is the real one or the embedded one of the
simulation. What holds for the one and not for the other is wrong in the embedded one. Nobody restarts the server, which all files share:
a test that needs that has one of its own (`test_history`).
"""

import asyncio
import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any, Protocol

import pytest

from hack.lib.control_plane import ControlPlane, binaries
from hack.sim.cluster import Call, Cluster, Refused, access
from hack.sim.cluster.serve import Served, self_signed, serving_cluster
from sidecar.kube.api import NAMESPACES
from sidecar.kube.client import KubeClient, open_client
from tests.contract.http_client import HttpClient, http_client
from tests.harness.coroutines import break_off, run_in_runner

Connect = Callable[..., KubeClient]
_numbers = itertools.count(1)


class Server(Protocol):
    """What the suite needs of a server besides its API."""

    kubeconfig: Path

    def kubeconfig_for(self, *, namespace: str, service_account: str) -> Path: ...

    def forget(self) -> None:
        """Lose all history: watches and continue tokens from before now are too old. Connections break."""
        ...

    def refuse_as_busy(self, *, namespace: str, service_account: str) -> None:
        """Answer the evictions of this account as a server that has too much to do."""
        ...


class RealServer:
    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.kubeconfig = plane.kubeconfig

    def kubeconfig_for(self, *, namespace: str, service_account: str) -> Path:
        return self._plane.kubeconfig_for(namespace=namespace, service_account=service_account)

    def forget(self) -> None:
        """Compaction alone is not enough: the server remembers recent changes in memory."""
        self._plane.request("POST", "/api/v1/namespaces", {"metadata": {"generateName": "after-"}})
        self._plane.compact()
        self._plane.stop_apiserver()
        self._plane.start_apiserver()

    def refuse_as_busy(self, *, namespace: str, service_account: str) -> None:
        """By a priority level that has no seat."""
        group, name = "flowcontrol.apiserver.k8s.io/v1", f"no-seat-{namespace}"
        limited = {"nominalConcurrencyShares": 0, "lendablePercent": 0, "limitResponse": {"type": "Reject"}}
        level = {"metadata": {"name": name}, "spec": {"type": "Limited", "limited": limited | {"borrowingLimitPercent": 0}}}
        self._plane.request("POST", f"/apis/{group}/prioritylevelconfigurations", level)
        who = {"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": service_account}}
        what = {"verbs": ["create"], "apiGroups": [""], "resources": ["pods/eviction"], "namespaces": ["*"]}
        rules = [{"subjects": [who], "resourceRules": [what]}]
        spec = {"priorityLevelConfiguration": {"name": name}, "matchingPrecedence": 1000, "rules": rules}
        self._plane.request("POST", f"/apis/{group}/flowschemas", {"metadata": {"name": name}, "spec": spec})


@contextmanager
def real(work_dir: Path) -> Iterator[Server]:
    with ControlPlane(binaries("core"), work_dir) as plane:
        yield RealServer(plane)


class EmbeddedServer:
    """The simulated cluster in a thread with a loop of its own: the tests' loops come and go."""

    def __init__(self, served: Served, loop: asyncio.AbstractEventLoop, work_dir: Path) -> None:
        self.stop = asyncio.Event()
        self.loop = loop
        self._served = served
        self._work_dir = work_dir
        self.kubeconfig = served.kubeconfig(work_dir / "kubeconfig")

    def kubeconfig_for(self, *, namespace: str, service_account: str) -> Path:
        user = access.service_account(namespace, service_account)
        return self._served.kubeconfig(self._work_dir / f"{namespace}.{service_account}.kubeconfig", user=user)

    def forget(self) -> None:
        async def forget() -> None:
            self._served.cluster.compact()
            self._served.cut_watches()

        asyncio.run_coroutine_threadsafe(forget(), self.loop).result(10)

    def refuse_as_busy(self, *, namespace: str, service_account: str) -> None:
        """The next one in this namespace."""
        left = [namespace]

        async def busy(call: Call) -> None:
            if (call.subresource, [call.namespace]) == ("eviction", left):
                left.clear()
                raise Refused(429, "TooManyRequests", "busy", details={"retryAfterSeconds": 1})

        self._served.before = busy


@contextmanager
def embedded(work_dir: Path) -> Iterator[Server]:
    ready: Queue[EmbeddedServer] = Queue()

    async def serve() -> None:
        cluster = Cluster(clock=time.time, rng=random.random)
        async with serving_cluster(cluster, certificate=self_signed(work_dir)) as served:
            server = EmbeddedServer(served, asyncio.get_running_loop(), work_dir)
            ready.put(server)
            await server.stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    server = ready.get(timeout=60)
    yield server
    server.loop.call_soon_threadsafe(server.stop.set)
    thread.join(60)


SERVERS = [pytest.param(real, id="kube-apiserver", marks=pytest.mark.real_api), pytest.param(embedded, id="simulation")]


@pytest.fixture(scope="session", params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with request.param(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def http(server: Server) -> Iterator[HttpClient]:
    """Requests word by word. Files that need something of the server first have their own."""
    with http_client(server.kubeconfig) as http:
        yield http


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner
        break_off(runner)


@pytest.fixture
def connect(server: Server, runner: asyncio.Runner) -> Iterator[Connect]:
    """More clients, for tests about who is asking or how."""
    opened: list[KubeClient] = []

    async def opening(options: dict[str, Any]) -> KubeClient:
        return await open_client(**{"kubeconfig": str(server.kubeconfig), "qps": -1.0, "environ": {}} | options)

    def connect(**options: Any) -> KubeClient:
        opened.append(runner.run(opening(options)))
        return opened[-1]

    yield connect
    for client in opened:
        runner.run(client.aclose())


@pytest.fixture
def api(connect: Connect) -> KubeClient:
    return connect()


@pytest.fixture
def brief(connect: Connect) -> KubeClient:
    """A client whose watches end after seconds; servers send a bookmark shortly before that."""
    return connect(watch_seconds=(5, 5))


@pytest.fixture
def namespace(runner: asyncio.Runner, api: KubeClient) -> str:
    """A new one for each test. Never deleted: emptying it takes a controller."""
    name = f"contract-{next(_numbers)}"
    runner.run(api.create(NAMESPACES, {"metadata": {"name": name}}))
    return name


@pytest.fixture
def stranger(server: Server, connect: Connect, tmp_path: Path) -> KubeClient:
    """With a token that the server never issued."""
    config = json.loads(server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "not-a-token"}
    file = tmp_path / "stranger.kubeconfig"
    file.write_text(json.dumps(config))
    return connect(kubeconfig=str(file))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_in_runner(pyfuncitem)
