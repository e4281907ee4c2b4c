"""The simulated API server behind HTTP: `python -m hack.sim.cluster.serve --port 0 --write-kubeconfig kubeconfig`.

A server for demos and tests, on loopback, which keeps everything in memory. It answers correctly, and wrongly on demand
(`cluster/http/api_faults`). It is not made to be fast: on one core thirty watchers can follow a thousand small writes a second.
With tokens it knows users, and the stored roles and bindings decide what they may do; without tokens everybody is the admin.
kubectl sends tokens by TLS only.
"""

import argparse
import asyncio
import base64
import contextlib
import gzip
import json
import random
import secrets
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NoReturn

from aiohttp import web

from hack.sim.cluster.cluster import Cluster
from hack.sim.cluster.http import discovery, reviews, routes, tables
from hack.sim.cluster.http.access import ADMIN, Access, User, Wish, service_account
from hack.sim.cluster.http.answers import Answers, Incoming, name_in
from hack.sim.cluster.http.api_faults import NO_FAULT, ApiFault, ApiFaults
from hack.sim.cluster.http.routes import JSON_TYPE, NoPath, Target
from hack.sim.cluster.refusals import Refused, bad_request, no_such_method
from hack.sim.cluster.storage.reading import too_old
from hack.sim.cluster.streaming import Stream
from sidecar.frozen import frozen
from sidecar.kube.api import Resource
from sidecar.model.objects import Json

_LARGEST_BODY: Final = 3 * 1024 * 1024
_GONE: Final = 410
_WORTH_COMPRESSING: Final = 128 * 1024
_WATCH_SECONDS: Final = (1800.0, 3600.0)
_HEALTH: Final = frozenset({"/healthz", "/livez", "/readyz"})


@frozen
class Certificate:
    """PEM files. The certificate is self-signed, or the root of a chain."""

    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.key)
        return context


class _HungUp(Exception):
    """The connection has been closed on purpose, so no answer can be sent."""


class Served:
    """A running server, and what tests do to it. Not thread-safe: from other threads use `loop.call_soon_threadsafe`."""

    def __init__(self, cluster: Cluster, *, faults: ApiFaults | None = None, certificate: Certificate | None = None) -> None:
        self.cluster = cluster
        self.access = Access(cluster.store)
        self.faults = faults or ApiFaults()
        self.url = ""
        self._answers = Answers(cluster, issue_token=lambda namespace, name: self._token_for(service_account(namespace, name)))
        self._certificate = certificate
        self._admin_token = ""
        self._streams: set[Stream] = set()
        self._server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(self._server, shutdown_timeout=0.1)
        self._port = 0
        self._site: web.TCPSite | None = None

    # --- what tests and demos do to it ------------------------------------------------------------------------------

    def kubeconfig(self, path: Path, *, user: User = ADMIN) -> Path:
        """Writes a kubeconfig for this user, with a token if the server knows tokens."""
        credentials = {"token": self._token_for(user)} if self._admin_token else {}
        authority = (
            {} if self._certificate is None else {"certificate-authority-data": _encoded(self._certificate.certificate.read_bytes())}
        )
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "simulation", "cluster": {"server": self.url} | authority}],
            "users": [{"name": user.name, "user": credentials}],
            "contexts": [{"name": "simulation", "context": {"cluster": "simulation", "user": user.name}}],
            "current-context": "simulation",
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=1) + "\n")
        return path

    def demand_token(self, token: str = "") -> str:
        """From now on only the bearer of this token is the admin."""
        self._admin_token = token or secrets.token_hex(16)
        self.access.add(self._admin_token, ADMIN)
        return self._admin_token

    def cut_watches(self) -> None:
        """Ends all open watches normally."""
        for stream in tuple(self._streams):
            stream.end(None)

    def hold_watches(self, *, held: bool = True) -> None:
        """Keeps all open watches silent until they are released."""
        for stream in tuple(self._streams):
            stream.hold(held=held)

    async def refuse(self) -> None:
        """Behaves as if the process were gone: connections break, and new ones are refused."""
        if self._site is not None:
            await self._site.stop()
            self._site = None
        for connection in list(self._server.connections):
            if connection.transport is not None:
                connection.transport.abort()

    async def accept(self) -> None:
        """Listens, on the same port as before if there was one."""
        context = None if self._certificate is None else self._certificate.context()
        self._site = web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=context, reuse_address=True)
        await self._site.start()
        self._port = int(self._runner.addresses[0][1])
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self._port}"

    async def start(self, port: int) -> None:
        self._port = port
        await self._runner.setup()
        await self.accept()

    async def stop(self) -> None:
        self.cut_watches()
        await self._runner.cleanup()

    def _token_for(self, user: User) -> str:
        if user == ADMIN:
            return self._admin_token
        token = secrets.token_hex(16)
        self.access.add(token, user)
        return token

    # --- one request ------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except _HungUp:
            return web.Response()  # which nobody gets
        except NoPath:
            return web.Response(status=404, text="404 page not found\n")
        except Refused as refusal:
            headers = {} if refusal.retry_after is None else {"Retry-After": str(refusal.retry_after)}
            return _response(request, json.dumps(refusal.status).encode(), status=refusal.code, headers=headers)
        except RecursionError:
            return _response(request, json.dumps(bad_request("the object is nested too deeply").status).encode(), status=400)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        user = self.access.user(request.headers.get("Authorization"))
        kinds = self.cluster.store.kinds.values()
        path = _path(request)
        if review := reviews.asked_for(request.method, path):
            return await self._review(request, user, review)
        try:
            target = routes.target(request.method, path, request.query, kinds)
        except (NoPath, Refused):
            document = discovery.document(path, kinds)
            if document is None and path not in _HEALTH:
                if ADMIN.groups[0] not in user.groups:
                    self.access.demand(user, Wish(verb=request.method.lower(), path=path))
                raise
            return await self._about_itself(request, user, document)
        raw = await _body(request)
        fault = self._fault(target, raw)
        await _trouble(request, fault)
        self.access.demand(user, target.wish)
        if target.verb == "watch":
            return await self._watch(request, target, fault)
        status, body = self._answers.answer(target, _incoming(request, raw), fault)
        if fault.lose:
            _hang_up(request)
        if fault.cut:
            return await _half_answered(request, body)
        return _response(request, body, status=status)

    async def _review(self, request: web.BaseRequest, user: User, kind: Resource) -> web.StreamResponse:
        raw = await _body(request)
        await _trouble(request, self.faults.take("create", kind.plural, ""))
        return _response(request, reviews.answered(self.access, user, kind, raw), status=201)

    async def _about_itself(self, request: web.BaseRequest, user: User, document: Json | None) -> web.StreamResponse:
        path = _path(request)
        await _trouble(request, self.faults.take(request.method.lower(), path, ""))
        self.access.demand(user, Wish(verb=request.method.lower(), path=path))
        if request.method != "GET":
            raise no_such_method()
        if document is None:
            return web.Response(text="ok")
        routes.demand_acceptable(request.headers.get("Accept"), discovery=True)
        return _response(request, json.dumps(document).encode())

    def _fault(self, target: Target, raw: bytes) -> ApiFault:
        if self.faults.none:
            return NO_FAULT
        resource = f"{target.resource.plural}/{target.subresource}" if target.subresource else target.resource.plural
        name = "/".join(part for part in (target.namespace, target.name or name_in(raw)) if part)
        fault = self.faults.take(target.verb, resource, name)
        if fault.compact:
            self.cluster.compact()
        return fault

    # --- watches ----------------------------------------------------------------------------------------------------

    async def _watch(self, request: web.BaseRequest, target: Target, fault: ApiFault) -> web.StreamResponse:
        routes.demand_acceptable(request.headers.get("Accept"))
        query = routes.query_of(target, request.query)
        seconds = float(routes.number(request.query, "timeoutSeconds")) or random.uniform(*_WATCH_SECONDS)
        try:
            if fault.gone:
                raise too_old(self.cluster.revision)
            stream = Stream(self.cluster, target.resource, query, seconds=seconds, bookmarks=routes.bookmarks(request.query))
        except Refused as refusal:
            if refusal.code != _GONE:
                raise
            return web.Response(body=_error_event(refusal), content_type=JSON_TYPE)  # the stream has begun, so the error goes into it
        if fault.silent:
            stream.hold(held=True)
        response = web.StreamResponse(headers={"Content-Type": JSON_TYPE})
        response.enable_chunked_encoding()
        self._streams.add(stream)
        try:
            await response.prepare(request)
            await self._tell(request, response, stream, fault)
        except ConnectionError:
            pass  # nobody listens any more
        finally:
            self._streams.discard(stream)
            stream.close()
        return response

    async def _tell(self, request: web.BaseRequest, response: web.StreamResponse, stream: Stream, fault: ApiFault) -> None:
        table = routes.wants_table(request.headers.get("Accept", ""))
        try:
            while told := await stream.next():
                lines = b"".join(tables.event(each, now=self.cluster.now()) if table else each.line for each in told)
                if fault.cut:
                    await response.write(lines[: len(lines) // 2])
                    _hang_up(request)
                await response.write(lines)
        except Refused as refusal:
            await response.write(_error_event(refusal))


@asynccontextmanager
async def serving_cluster(
    cluster: Cluster, *, port: int = 0, token: str | None = None, faults: ApiFaults | None = None, certificate: Certificate | None = None
) -> AsyncIterator[Served]:
    """Serves the cluster on loopback inside the block. `token` is the admin's: an empty one is drawn, None asks for no token at all."""
    served = Served(cluster, faults=faults, certificate=certificate)
    if token is not None:
        served.demand_token(token)
    await served.start(port)
    try:
        yield served
    finally:
        await served.stop()


def self_signed(folder: Path) -> Certificate:
    """A certificate for loopback. Needs the program openssl."""
    made = Certificate(folder / "simulation.crt", folder / "simulation.key")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
    command += ["-subj", "/CN=simulation", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    subprocess.run([*command, "-keyout", str(made.key), "-out", str(made.certificate)], check=True, capture_output=True)
    return made


# ---- bodies, in and out ----


def _path(request: web.BaseRequest) -> str:
    """The path as it was sent: a URL parser would take a double slash for a host."""
    return request.raw_path.partition("?")[0]


def _incoming(request: web.BaseRequest, raw: bytes) -> Incoming:
    headers = request.headers
    content_type = routes.media_type(headers.get("Content-Type"))
    return Incoming(request.query, raw, headers.get("Accept", ""), content_type, headers.get("User-Agent", ""))


async def _body(request: web.BaseRequest) -> bytes:
    read = bytearray()
    async for chunk in request.content.iter_any():
        read += chunk
        if len(read) > _LARGEST_BODY:
            raise Refused(413, "RequestEntityTooLarge", f"Request entity too large: limit is {_LARGEST_BODY}")
    return bytes(read)


def _response(request: web.BaseRequest, body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    more = dict(headers or {})
    if len(body) >= _WORTH_COMPRESSING and "gzip" in request.headers.get("Accept-Encoding", ""):
        body = gzip.compress(body, compresslevel=1)
        more |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return web.Response(body=body, status=status, headers=more, content_type=JSON_TYPE)


# ---- trouble ----


async def _trouble(request: web.BaseRequest, fault: ApiFault) -> None:
    """Applies the part of a fault that comes before the effect."""
    if fault is NO_FAULT:
        return
    if fault.slow is None:
        await asyncio.get_running_loop().create_future()
    await asyncio.sleep(fault.slow or 0.0)
    if fault.refuse:
        _hang_up(request)
    if fault.status:
        raise fault.refusal


def _hang_up(request: web.BaseRequest) -> NoReturn:
    if request.transport is not None:
        request.transport.abort()
    raise _HungUp


async def _half_answered(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": JSON_TYPE, "Content-Length": str(len(body))})
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response


def _error_event(refusal: Refused) -> bytes:
    return json.dumps({"type": "ERROR", "object": refusal.status}).encode() + b"\n"


def _encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


# ---- the process ----


async def run(options: argparse.Namespace) -> None:
    """Serves until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    cluster = Cluster(clock=time.time, rng=random.random)
    faults = ApiFaults(file=options.faults, complain=_complain)
    certificate = self_signed(options.tls) if options.tls else None
    async with serving_cluster(cluster, port=options.port, token=options.token, faults=faults, certificate=certificate) as served:
        if options.write_kubeconfig:
            served.kubeconfig(options.write_kubeconfig)
        sys.stdout.write(f"serving a simulated cluster on {served.url}\n")
        sys.stdout.flush()
        collecting = asyncio.create_task(_collect(cluster))
        await stop.wait()
        collecting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await collecting


async def _collect(cluster: Cluster) -> None:
    while True:
        await asyncio.sleep(1.0)
        cluster.collect_garbage()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hack.sim.cluster.serve",
        description="An API server for tests and demos: in memory, on loopback, faults on demand. Not for anybody's cluster.",
        allow_abbrev=False,
    )
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (default)")
    parser.add_argument("--write-kubeconfig", type=Path, metavar="FILE", help="where to write how to reach it as the admin")
    parser.add_argument("--token", metavar="TOKEN", help="the admin's; without it everybody is the admin")
    parser.add_argument("--tls", type=Path, metavar="FOLDER", help="speak TLS, by a certificate that is made and left in this folder")
    parser.add_argument("--faults", type=Path, metavar="FILE", help="a JSON list of faults, read anew whenever it changes")
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    try:
        asyncio.run(run(options))
    except (OSError, subprocess.CalledProcessError) as error:
        _complain(str(error))
        return 1
    return 0


def _complain(text: str) -> None:
    sys.stderr.write(f"serve_cluster: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
