"""The simulated API server behind HTTP.

A server for demos and tests, on loopback, which keeps everything in memory. It is not made to be fast: on one core thirty watchers can
follow a thousand small writes a second. It knows users by their tokens, and the stored roles and bindings decide what they may do. Of
kubectl's verbs it knows those that send JSON, and shows name and age.
"""

import base64
import json
import random
import secrets
import ssl
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from hack.sim.cluster import access
from hack.sim.cluster.access import ADMIN, Access, Target, User
from hack.sim.cluster.api_server import ApiServer
from hack.sim.cluster.deletion import options_of
from hack.sim.cluster.inprocess import Call, Hook, nothing
from hack.sim.cluster.patches import APPLY_PATCH
from hack.sim.cluster.reading import Listed, Stream
from hack.sim.cluster.refusals import Refused, bad_request
from sidecar.kube.api import ACCESS_REVIEWS, REVIEWS_OF_OTHERS, Resource
from sidecar.kube.wire import path_of

_JSON: Final = "application/json"
_GONE: Final = 410
_WATCH_SECONDS: Final = (1800.0, 3600.0)
_REVIEWS: Final = {path_of(resource): resource for resource in (ACCESS_REVIEWS, REVIEWS_OF_OTHERS)}


@dataclass(frozen=True, slots=True)
class Certificate:
    """PEM files. The certificate is self-signed, or the root of a chain."""

    certificate: Path
    key: Path


class Served:
    """A running server, and what tests do to it. Not thread-safe: from other threads use `loop.call_soon_threadsafe`. With a certificate
    it asks for tokens, without one everybody is the admin.

    `before` runs ahead of every request for objects and `after` behind its effect: sleep there for latency, raise `Refused` for another
    answer, or `ConnectionError`, and there is none.
    """

    def __init__(self, cluster: ApiServer, *, certificate: Certificate | None = None, before: Hook = nothing) -> None:
        self.cluster = cluster
        self.access = Access(cluster.store)
        self.before, self.after = before, nothing
        self.pages: dict[str, bytes] = {}
        """What pods serve to who asks the API server for it, by NAMESPACE/POD:PORT/PATH?QUERY."""
        self.url = ""
        self._certificate = certificate
        self._admin_token = secrets.token_hex(16) if certificate else ""
        if certificate:
            self.access.add(self._admin_token, ADMIN)
        self._streams: set[Stream] = set()
        self._runner = web.ServerRunner(web.Server(self._handle, handler_cancellation=True, access_log=None), shutdown_timeout=0.1)

    def kubeconfig(self, path: Path, *, user: User = ADMIN) -> Path:
        """Writes a kubeconfig for this user, with a token if the server knows tokens."""
        cluster = {"server": self.url}
        if self._certificate is not None:
            cluster["certificate-authority-data"] = base64.b64encode(self._certificate.certificate.read_bytes()).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "simulation", "cluster": cluster}],
            "users": [{"name": user.name, "user": {"token": self._token_for(user)} if self._admin_token else {}}],
            "contexts": [{"name": "simulation", "context": {"cluster": "simulation", "user": user.name}}],
            "current-context": "simulation",
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=1) + "\n")
        return path

    def cut_watches(self) -> None:
        """Ends all open watches normally."""
        for stream in tuple(self._streams):
            stream.end(None)

    async def start(self) -> None:
        context = None
        if self._certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(self._certificate.certificate, self._certificate.key)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context, reuse_address=True).start()
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        self.cut_watches()
        await self._runner.cleanup()

    def _token_for(self, user: User) -> str:
        if user == ADMIN:
            return self._admin_token
        token = secrets.token_hex(16)
        self.access.add(token, user)
        return token

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except ConnectionError:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()  # which nobody gets
        except Refused as refusal:
            headers = {} if refusal.retry_after is None else {"Retry-After": str(refusal.retry_after)}
            return _response(_encoded(refusal.status), status=refusal.code, headers=headers)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        user = self.access.user(request.headers.get("Authorization"))
        kinds = self.cluster.store.kinds.values()
        path = request.raw_path.partition("?")[0]  # as it was sent: a URL parser would take a double slash for a host
        raw = await request.content.read()
        if path in _REVIEWS and request.method == "POST":
            return await self._review(request, user, _REVIEWS[path], raw)
        about_itself = access.document(path, kinds)
        if about_itself is not None:
            await self.before(Call(request.method.lower(), path))
            return _response(_encoded(about_itself))
        if of_pod := access.proxied(path):
            self.access.demand(user, of_pod[0])
            found = self.pages.get(f"{of_pod[1]}?{request.query_string}")
            if found is None:
                raise Refused(503, "ServiceUnavailable", "error trying to reach service: connect: connection refused")
            return _response(found)
        target = access.target(request.method, path, request.query, kinds)
        body = _body(raw)
        named = (body.get("metadata") or {}).get("name") if isinstance(body, dict) else None
        call = replace(target, name=target.name or str(named or ""))
        await self.before(call)
        self.access.demand(user, target)
        if target.verb == "watch":
            return await self._watch(request, target)
        status, answer = self._done(request, target, body)
        await self.after(call)
        return _response(answer, status=status)

    async def _review(self, request: web.BaseRequest, user: User, kind: Resource, raw: bytes) -> web.StreamResponse:
        await self.before(Call("create", kind))
        return _response(_encoded(self.access.review(user, kind, _body(raw))), status=201)

    def _done(self, request: web.BaseRequest, target: Target, body: Any) -> tuple[int, bytes]:
        """Status and body of a success. It never awaits, so no other request comes in between."""
        cluster, query, resource, name, namespace = self.cluster, request.query, target.resource, target.name, target.namespace
        trial, where = query.get("dryRun") == "All", {"namespace": namespace, "subresource": target.subresource}
        match target.verb:
            case "list":
                return 200, _list_body(cluster.list(resource, access.query_of(target, query)))
            case "get":
                return 200, cluster.get(resource, name, namespace=namespace, subresource=target.subresource).whole
            case "delete":
                # kubectl's words are in the query where there is no body.
                grace = int(query["gracePeriodSeconds"]) if "gracePeriodSeconds" in query else None
                options = options_of(body or {**query, "gracePeriodSeconds": grace})
                return 200, cluster.delete(resource, name, namespace=namespace, options=options)[0].whole
            case "create" if target.subresource:
                return 201, _encoded(cluster.post(resource, name, target.subresource, body, namespace=namespace))
            case "create":
                return 201, cluster.create(resource, body, namespace=namespace, dry_run=trial).whole
            case "update":
                return 200, cluster.replace(resource, body, name=name, dry_run=trial, **where).whole
            case _:
                content_type = (request.headers.get("Content-Type") or "").partition(";")[0].strip().lower()
                fresh = content_type == APPLY_PATCH and cluster.store.stored(cluster.kind(resource), name, namespace) is None
                stored = cluster.patch(resource, name, body, content_type=content_type, dry_run=trial, **where)
                return (201 if fresh else 200), stored.whole

    async def _watch(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        query = access.query_of(target, request.query)
        seconds = float(request.query.get("timeoutSeconds") or random.uniform(*_WATCH_SECONDS))
        try:
            stream = Stream(
                lambda wake: self.cluster.watch(target.resource, query, wake=wake),
                seconds=seconds,
                bookmarks=access.flag(request.query, "allowWatchBookmarks"),
            )
        except Refused as refusal:
            if refusal.code != _GONE:
                raise
            return web.Response(body=_error_event(refusal), content_type=_JSON)  # the stream has begun, so the error goes into it
        response = web.StreamResponse(headers={"Content-Type": _JSON})
        response.enable_chunked_encoding()
        self._streams.add(stream)
        try:
            await response.prepare(request)
            while told := await stream.next():
                await response.write(b"".join(each.line for each in told))
        except Refused as refusal:
            await response.write(_error_event(refusal))
        except ConnectionError:
            pass  # nobody listens any more
        finally:
            self._streams.discard(stream)
            stream.close()
        return response


@asynccontextmanager
async def serving_cluster(cluster: ApiServer, *, certificate: Certificate | None = None, before: Hook = nothing) -> AsyncIterator[Served]:
    """Serves the cluster on loopback inside the block."""
    served = Served(cluster, certificate=certificate, before=before)
    await served.start()
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


def _body(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else {}
    except ValueError as error:  # kubectl sends some in another encoding
        raise bad_request(f"the object provided is unrecognized: couldn't get version/kind; json parse error: {error}") from None


def _list_body(page: Listed) -> bytes:
    head = {"kind": f"{page.resource.kind}List", "apiVersion": page.resource.api_version, "metadata": page.meta}
    return _encoded(head)[:-1] + b',"items":[' + b",".join(item.item for item in page.items) + b"]}"


def _error_event(refusal: Refused) -> bytes:
    return _encoded({"type": "ERROR", "object": refusal.status}) + b"\n"


def _encoded(obj: Any) -> bytes:
    return json.dumps(obj).encode()


def _response(body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=body, status=status, headers=headers, content_type=_JSON)
