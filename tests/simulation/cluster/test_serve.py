"""The simulated API server on a real socket, seen through our own client: what it does on demand, and the program."""

import asyncio
import gzip
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hack.sim.cluster.http.api_faults import ApiFault, ApiFaults, BadFault, api_fault_of, read_api_faults

from hack.sim.cluster import Cluster
from hack.sim.cluster.access import User
from hack.sim.cluster.serve import Served, self_signed, serving_cluster
from sidecar.kube.api import CLAIMS, CONFIG_MAPS, NAMESPACES
from sidecar.kube.client import KubeClient, open_client
from sidecar.kube.errors import Forbidden, Gone, NotFound, TooManyRequests, Unauthorized, Unavailable
from tests.contract.objects import claim, config_map
from tests.harness.cluster_tools import new_cluster

Scene = Callable[[Served, KubeClient], Awaitable[None]]


@asynccontextmanager
async def _client(served: Served, folder: Path, *, user: User | None = None, **options: Any) -> AsyncIterator[KubeClient]:
    file = folder / f"{user.name if user else 'admin'}.kubeconfig"
    served.kubeconfig(file, user=user) if user else served.kubeconfig(file)
    async with await open_client(**{"kubeconfig": str(file), "qps": -1.0, "environ": {}} | options) as client:
        yield client


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Scene], Cluster]:
    """Runs a scene with a server and a client of it, in real time but not for ever."""

    def play(scene: Scene, *, token: str | None = None, **options: Any) -> Cluster:
        cluster = new_cluster(clock=time.time)

        async def main() -> None:
            async with (
                asyncio.timeout(20),
                serving_cluster(cluster, token=token) as served,
                _client(served, tmp_path, **options) as client,
            ):
                await scene(served, client)

        asyncio.run(main())
        return cluster

    return play


def _words(fault: ApiFault) -> str:
    """What is said in it, as the name of a test."""
    said = [f"{field.name}={getattr(fault, field.name)}" for field in fields(fault) if getattr(fault, field.name) != field.default]
    return ",".join(said)


async def _make(client: KubeClient, name: str) -> None:
    await client.create(CONFIG_MAPS, config_map(name), namespace="default")


def test_a_whole_round(play: Any) -> None:
    async def scene(served: Served, client: KubeClient) -> None:
        version = (await client.list_page(CLAIMS)).resource_version
        async with aclosing(client.watch(CLAIMS, resource_version=version)) as stream:
            made = await client.create(CLAIMS, claim("a"), namespace="default")
            assert (await anext(stream)).object == made

    play(scene)


@pytest.mark.parametrize(
    ("fault", "error", "done"),
    [
        (ApiFault(refuse=True), Unavailable, False),
        (ApiFault(status=429, retry_after=0), TooManyRequests, False),
        (ApiFault(status=503), Unavailable, False),
        (ApiFault(status=500), Unavailable, False),
        (ApiFault(status=401), Unauthorized, False),
        (ApiFault(status=403), Forbidden, False),
        (ApiFault(slow=None), Unavailable, False),
        (ApiFault(lose=True), Unavailable, True),
        (ApiFault(cut=True), Unavailable, True),
    ],
    ids=lambda value: _words(value) if isinstance(value, ApiFault) else "",
)
def test_a_request_that_goes_wrong(play: Any, fault: ApiFault, error: type[Exception], done: bool) -> None:
    async def scene(served: Served, client: KubeClient) -> None:
        served.faults.set(fault)
        with pytest.raises(error):
            await _make(client, "a")
        served.faults.set()
        await _make(client, "b")

    cluster = play(scene, request_timeout=0.5)
    assert (cluster.store.find(CONFIG_MAPS, "a", "default") is not None) is done
    assert cluster.store.find(CONFIG_MAPS, "b", "default") is not None


def test_slow_is_slow(play: Any) -> None:
    async def scene(served: Served, client: KubeClient) -> None:
        served.faults.set(ApiFault(slow=0.3))
        started = time.monotonic()
        await _make(client, "a")
        assert 0.3 <= time.monotonic() - started < 2

    play(scene)


def test_a_stale_read_shows_the_past(play: Any) -> None:
    async def scene(served: Served, client: KubeClient) -> None:
        for name in "abc":
            await _make(client, name)
        served.faults.set(ApiFault(stale=2))
        assert [item["metadata"]["name"] for item in (await client.list_page(CONFIG_MAPS)).items] == ["a"]
        assert (await client.get(CONFIG_MAPS, "a", namespace="default"))["metadata"]["name"] == "a"
        with pytest.raises(NotFound):
            await client.get(CONFIG_MAPS, "c", namespace="default")

    play(scene)


def test_a_fault_finds_its_request_and_is_used_up(play: Any) -> None:
    async def scene(served: Served, client: KubeClient) -> None:
        served.faults.set(ApiFault(verb="create", resource="configmaps", names="default/a", times=1, status=500))
        await _make(client, "b")
        with pytest.raises(Unavailable):
            await _make(client, "a")
        await _make(client, "a")

    play(scene)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (ApiFault(verb="watch", gone=True), Gone),
        (ApiFault(verb="watch", cut=True), Unavailable),
        (ApiFault(verb="watch", silent=True), Unavailable),
    ],
    ids=lambda value: _words(value) if isinstance(value, ApiFault) else "",
)
def test_a_watch_that_goes_wrong(play: Any, fault: ApiFault, error: type[Exception]) -> None:
    async def scene(served: Served, client: KubeClient) -> None:
        served.faults.set(fault)
        version = (await client.list_page(CONFIG_MAPS)).resource_version
        await _make(client, "a")
        with pytest.raises(error):
            async with aclosing(client.watch(CONFIG_MAPS, resource_version=version)) as stream:
                await anext(stream)

    play(scene, watch_silence=0.5)


def test_compaction_on_demand(play: Any) -> None:
    async def scene(served: Served, client: KubeClient) -> None:
        version = (await client.list_page(CONFIG_MAPS)).resource_version
        await _make(client, "a")
        served.faults.set(ApiFault(verb="watch", compact=True, times=1))
        with pytest.raises(Gone):
            await anext(client.watch(CONFIG_MAPS, resource_version=version))

    play(scene)


def test_too_late_is_told_in_the_stream_or_on_demand_by_the_code(play: Any) -> None:
    async def scene(served: Served, client: KubeClient) -> None:
        version = (await client.list_page(CONFIG_MAPS)).resource_version
        await _make(client, "a")
        served.cluster.compact()
        _, raw = await _raw(f"{served.url}/api/v1/configmaps?watch=true&resourceVersion={version}")
        error = json.loads(raw)
        assert (error["type"], error["object"]["code"], error["object"]["reason"]) == ("ERROR", 410, "Expired")
        served.faults.set(ApiFault(verb="watch", status=410))
        with pytest.raises(Gone):
            await anext(client.watch(CONFIG_MAPS, resource_version=str(served.cluster.revision)))

    play(scene)


def test_a_server_that_is_away_for_a_while(play: Any) -> None:
    async def scene(served: Served, client: KubeClient) -> None:
        version = (await client.list_page(CONFIG_MAPS)).resource_version
        async with aclosing(client.watch(CONFIG_MAPS, resource_version=version)) as stream:
            hearing = asyncio.create_task(anext(stream))
            await asyncio.sleep(0.2)
            await served.refuse()
            with pytest.raises(Unavailable):
                await hearing
        with pytest.raises(Unavailable):
            await _make(client, "a")
        await served.accept()
        await _make(client, "a")

    play(scene)


def test_watches_are_forgotten_when_nobody_listens_any_more(play: Any) -> None:
    async def scene(served: Served, client: KubeClient) -> None:
        version = (await client.list_page(CONFIG_MAPS)).resource_version
        await _make(client, "a")
        async with aclosing(client.watch(CONFIG_MAPS, resource_version=version)) as stream:
            await anext(stream)
            assert len(served._streams) == 1
        while served._streams:
            await asyncio.sleep(0.01)

    play(scene)


def test_roles_on_demand(play: Any, tmp_path: Path) -> None:
    async def scene(served: Served, client: KubeClient) -> None:
        async with _client(served, tmp_path, user=User("jane", ("system:authenticated",))) as jane:
            with pytest.raises(Forbidden, match='User "jane" cannot list resource "configmaps" in API group "" at the cluster scope'):
                await jane.list_page(CONFIG_MAPS)
            assert await jane.server_version()
        served.access.forbid("create", "configmaps")
        with pytest.raises(Forbidden, match='User "admin" cannot create resource "configmaps"'):
            await _make(client, "a")
        served.access.permit("create", "configmaps")
        await _make(client, "a")

    play(scene, token="")


def test_a_token_that_expires(play: Any) -> None:
    async def scene(served: Served, client: KubeClient) -> None:
        await client.list_page(NAMESPACES)
        served.access.revoke("mine")
        served.demand_token("other")
        with pytest.raises(Unauthorized):
            await client.list_page(NAMESPACES)

    play(scene, token="mine")


async def _raw(url: str, **headers: str) -> tuple[aiohttp.typedefs.LooseHeaders, bytes]:
    async with aiohttp.ClientSession(auto_decompress=False) as session, session.get(url, headers=headers) as response:
        return response.headers, await response.read()


def test_large_lists_are_compressed_for_those_who_ask(play: Any) -> None:
    async def scene(served: Served, client: KubeClient) -> None:
        for number in range(200):
            served.cluster.create(CONFIG_MAPS, config_map(f"n{number}", x="y" * 1000), namespace="default")
        url = f"{served.url}/api/v1/configmaps"
        headers, packed = await _raw(url, **{"Accept-Encoding": "gzip"})
        plain_headers, plain = await _raw(url, **{"Accept-Encoding": "identity"})
        assert headers["Content-Encoding"] == "gzip" and "Content-Encoding" not in plain_headers  # type: ignore[index,call-overload]
        assert gzip.decompress(packed) == plain
        assert len((await client.list_page(CONFIG_MAPS)).items) == 200

    play(scene)


def test_tables_for_people(play: Any) -> None:
    async def scene(served: Served, client: KubeClient) -> None:
        await client.create(CLAIMS, claim("a"), namespace="default")
        _, raw = await _raw(
            f"{served.url}/api/v1/persistentvolumeclaims", Accept="application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
        )
        table = json.loads(raw)
        names = [column["name"] for column in table["columnDefinitions"]]
        assert dict(zip(names, table["rows"][0]["cells"], strict=True)) | {"Age": ""} == {
            "Name": "a", "Status": "Pending", "Volume": "", "Capacity": "", "Access Modes": "RWO", "StorageClass": "fast", "Age": "",
        }  # fmt: skip

    play(scene)


def test_by_tls(tmp_path: Path) -> None:
    async def main() -> None:
        certificate = self_signed(tmp_path)
        async with serving_cluster(new_cluster(), certificate=certificate) as served, _client(served, tmp_path) as client:
            assert await client.server_version()
            with pytest.raises(aiohttp.ClientError):
                await _raw(served.url)

    asyncio.run(main())
    assert ssl.create_default_context(cafile=str(tmp_path / "simulation.crt"))


def test_the_program(tmp_path: Path) -> None:
    file, faults = tmp_path / "kubeconfig", tmp_path / "faults.json"
    command = [sys.executable, "-m", "hack.sim.cluster.serve", "--write-kubeconfig", str(file), "--faults", str(faults)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline().startswith("serving a simulated cluster on http://127.0.0.1:")

            async def main() -> None:
                async with await open_client(kubeconfig=str(file), qps=-1.0, environ={}) as client:
                    await _make(client, "a")
                    faults.write_text(json.dumps([{"verb": "list", "status": 503}]))
                    with pytest.raises(Unavailable):
                        await client.list_page(CONFIG_MAPS)
                    faults.unlink()
                    assert len((await client.list_page(CONFIG_MAPS)).items) == 1

            asyncio.run(main())
            assert file.stat().st_mode & 0o777 == 0o600
        finally:
            os.kill(program.pid, signal.SIGTERM)
        assert program.wait(10) == 0


def test_a_port_that_is_taken_is_an_error_in_one_line(tmp_path: Path) -> None:
    async def main() -> subprocess.CompletedProcess[str]:
        async with serving_cluster(new_cluster()) as served:
            command = [sys.executable, "-m", "hack.sim.cluster.serve", "--port", served.url.rpartition(":")[2]]
            return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)

    done = asyncio.run(main())
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"verb": "get"},
        {"bogus": 1},
        {"status": "x"},
        {"slow": "1"},
        {"verb": 5, "refuse": True},
        {"refuse": 1},
        {"times": "x", "cut": True},
    ],
    ids=str,
)
def test_what_is_no_fault(data: Any) -> None:
    with pytest.raises(BadFault):
        api_fault_of(data)


def test_a_faults_file_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    file, told = tmp_path / "faults", list[str]()
    file.write_text('[{"verb": "get", "status": 500}]')
    faults = ApiFaults(file=file, complain=told.append)
    assert faults.take("get", "pods", "a").status == 500
    file.write_text('[{"verb": "get", "sta')
    assert faults.take("get", "pods", "a").status == 500
    assert len(told) == 1
    assert read_api_faults(tmp_path / "none") == ()
    file.write_text("{}")
    with pytest.raises(BadFault):
        read_api_faults(file)
