"""A server on a real socket that does what a test tells it to, broken things included, and remembers what it was asked."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web

from sidecar.kube.client import KubeClient, open_client

T = TypeVar("T")
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    at: float


class ScriptedServer:
    """`async with` it; `answers` are used up one by one, the last one stays."""

    def __init__(self, *answers: Answer, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.answers = list(answers)
        self.seen: list[Seen] = []
        self.url = ""
        self.port = port
        self._tls = tls
        self._handling: set[asyncio.Task[Any]] = set()
        self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)

    async def __aenter__(self) -> "ScriptedServer":
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self._tls, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        for task in self._handling:
            task.cancel()
        await asyncio.gather(*self._handling, return_exceptions=True)

    async def client(self, **options: Any) -> KubeClient:
        return await open_client(**{"master": self.url, "qps": -1.0, "request_timeout": 60.0} | options)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._handling.add(task)
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append(Seen(request.method, request.path, dict(request.query), headers, await request.read(), time.monotonic()))
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        return await answer(request)


def says(body: Any, *, status: int = 200, headers: dict[str, str] | None = None, content_type: str = "application/json") -> Answer:
    """A complete answer; anything but text and bytes is made JSON."""

    async def answer(request: web.Request) -> web.StreamResponse:
        raw = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        return web.Response(body=raw, status=status, headers=headers, content_type=content_type)

    return answer


def refuses(status: int, message: str, *, reason: str = "", headers: dict[str, str] | None = None, **details: Any) -> Answer:
    body = {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": status, "details": details}
    return says(body, status=status, headers=headers)


def streams(*lines: Any, then: str = "ends") -> Answer:
    """A watch: each line at once, then it `ends`, `breaks` the connection, or stays `silent`."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for line in lines:
            await response.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
        if then == "silent":
            await asyncio.sleep(60)
        if then == "breaks":
            assert request.transport is not None
            request.transport.close()
        return response

    return answer


async def hangs(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


async def hangs_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


def event(kind: str, name: str, version: int) -> dict[str, Any]:
    return {"type": kind, "object": {"metadata": {"name": name, "uid": name, "resourceVersion": str(version)}}}


@asynccontextmanager
async def client_of(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]], *, request_timeout: float
) -> AsyncIterator[KubeClient]:
    """A client of a server that talks as told on each connection; both end with the block."""
    tasks: set[asyncio.Task[None]] = set()
    server = await asyncio.start_server(lambda *ends: tasks.add(asyncio.create_task(talk(*ends))), "127.0.0.1", 0, limit=2**20)
    try:
        port = server.sockets[0].getsockname()[1]
        async with await open_client(master=f"http://127.0.0.1:{port}", qps=-1.0, request_timeout=request_timeout) as client:
            yield client
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.01)
