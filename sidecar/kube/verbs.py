"""`KubeClient` makes each call of `KubeApi` a request: its method, path, query and body. Sending it is `transport`'s part."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sidecar.kube import page_sizes, wire
from sidecar.kube.api import EVENTS, PODS, Page, Reached, Resource, Take, WatchEvent, always, take_none
from sidecar.kube.errors import NotFound
from sidecar.kube.event_prefix import Skip, read_metadata, read_prefix, reads_all, without_managed_fields
from sidecar.kube.large_objects import LARGE
from sidecar.kube.line_reader import TooLong
from sidecar.kube.list_reader import ListReader
from sidecar.kube.list_sieve import ListSieve
from sidecar.kube.transport import Limiter, Request, Transport
from sidecar.model.objects import Json
from sidecar.model.packed import PackedVolume

_DISCOVERY_LASTS = 600.0


class _TooLarge(Exception):
    """A page that is not read to its end, because its objects are large."""


@dataclass(slots=True, eq=False, repr=False)
class _Size:
    """Of a page as it was sent."""

    objects: int = 0
    bytes: int = 0


class Kinds:
    """Answers of discovery, by API version. They are kept for a while only, since CustomResourceDefinitions come and go."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[str, tuple[float, dict[str, Resource]]] = {}

    def get(self, api_version: str, kind: str) -> Resource | None:
        until, kinds = self._known.get(api_version, (float("-inf"), {}))
        return kinds.get(kind) if self._clock() < until else None

    def learn(self, api_version: str, answer: Json) -> None:
        group, _, version = api_version.rpartition("/")
        kinds = {
            entry["kind"]: Resource(group, version, entry["name"], entry["kind"], bool(entry.get("namespaced")))
            for entry in _entries(answer.get("resources"))
            if "/" not in entry["name"]  # a subresource, such as pods/eviction
        }
        self._known[api_version] = self._clock() + _DISCOVERY_LASTS, kinds


def _full_name(obj: Any) -> str:
    """For people. Whatever was sent in place of an object has no name."""
    meta = obj.get("metadata") if isinstance(obj, dict) else None
    return "/".join(str(meta[part]) for part in ("namespace", "name") if meta.get(part)) if isinstance(meta, dict) else ""


def _entries(resources: object) -> list[Json]:
    """The entries that have a name and a kind."""
    entries = resources if isinstance(resources, list) else []
    return [each for each in entries if isinstance(each, dict) and isinstance(each.get("name"), str) and isinstance(each.get("kind"), str)]


class KubeClient:
    """`KubeApi`. Made by `open_client`, or from another client by `with_limits`."""

    def __init__(
        self,
        transport: Transport,
        limiter: Callable[[float, int], Limiter],
        *,
        qps: float,
        burst: int,
        watch_for: Callable[[], int],
        kinds: Kinds,
        limits: dict[Resource, int] | None = None,
        reached: Reached,
    ) -> None:
        """`limits` are what page_sizes has found, by resource."""
        self.reached = reached
        self._transport = transport
        self._make_limiter = limiter
        self._limiter = limiter(qps, burst)
        self._watch_for = watch_for
        self._kinds = kinds
        self._limits: dict[Resource, int] = {} if limits is None else limits

    def with_limits(self, *, qps: float, burst: int) -> "KubeClient":
        """Another client on the same connections, with a rate of its own. Closing the first one closes them for all."""
        shared: Any = {"watch_for": self._watch_for, "kinds": self._kinds, "limits": self._limits, "reached": self.reached}
        return KubeClient(self._transport, self._make_limiter, qps=qps, burst=burst, **shared)

    @property
    def namespace(self) -> str:
        """Where people mean things to be that they name without a namespace, if their kubeconfig says so."""
        return self.reached.namespace

    async def aclose(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> "KubeClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> Json:
        return await self._ask("get", "GET", resource, name=name, namespace=namespace)

    async def list_page(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 500,
        continue_token: str = "",
        resource_version: str = "",
        begin: Callable[[], Take] = take_none,
        skip: Skip = reads_all,
    ) -> Page:
        query = {"label_selector": label_selector, "field_selector": field_selector, "resource_version": resource_version}
        again = False
        while True:
            known = self._limits.get(resource, page_sizes.MOST_OBJECTS)
            request = _request(
                "list",
                "GET",
                resource,
                namespace=namespace,
                query=wire.query_of(limit=min(limit, known), continue_token=continue_token, **query),
                # If each page took a token of the limiter, a restart in a big cluster would take many seconds longer.
                goes_on=bool(continue_token) or again,
            )
            try:
                page, size = await self._page(request, limit=min(limit, known), after=continue_token, take=begin(), skip=skip)
            except _TooLarge:
                self._limits[resource], again = page_sizes.smaller(min(limit, known)), True
                continue
            if known <= limit and size.objects <= known:
                self._limits[resource] = page_sizes.next_limit(known, count=size.objects, size=size.bytes)
            return page

    async def _page(self, request: Request, *, limit: int, after: str, take: Take, skip: Skip) -> tuple[Page, "_Size"]:
        sieve = ListSieve(skip, longest=LARGE)  # people are told of larger ones
        reader = ListReader(what=request.what, after=after, note=lambda obj, size: self._note_if_large(request, obj, size))
        items: list[Json] = []
        size = _Size()

        def keep(found: Iterable[Json]) -> None:
            for obj in found:
                if not take(obj):
                    items.append(obj)

        def read(piece: bytes) -> None:
            keep(reader.feed(piece if skip is reads_all else sieve.feed(piece)))
            size.bytes, size.objects = size.bytes + len(piece), reader.count + sieve.left_out
            if page_sizes.is_too_large(limit, count=size.objects, size=size.bytes):
                raise _TooLarge

        await self._transport.send(request, self._limiter, take=read)
        keep(reader.feed(sieve.rest()))
        left, version, token = reader.finish()
        keep(left)
        size.objects = reader.count + sieve.left_out
        return Page(items, version, token), size

    async def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        skip: Skip = reads_all,
    ) -> AsyncGenerator[WatchEvent, None]:
        query = wire.query_of(
            watch="true",
            allow_watch_bookmarks="true",
            resource_version=resource_version,
            timeout_seconds=self._watch_for(),
            label_selector=label_selector,
            field_selector=field_selector,
        )
        request = _request("watch", "GET", resource, namespace=namespace, query=query)
        stream = self._transport.lines(request, self._limiter)
        try:
            async for line in stream:
                if isinstance(line, TooLong):
                    event = wire.long_event(line, what=request.what)
                    self._note_if_large(request, event.object, line.size)
                    yield event
                    continue
                prefix = None if skip is reads_all else read_prefix(line)
                if prefix is not None and skip(prefix, line):
                    if len(line) > LARGE and (found := read_metadata(line)):
                        self._note_if_large(request, {"metadata": found[1]}, len(line))
                    yield WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": prefix.version}})
                else:
                    event = wire.watch_event(line if prefix is None else without_managed_fields(line), what=request.what)
                    self._note_if_large(request, event.object, len(line))
                    yield event
        finally:
            await stream.aclose()

    def _note_if_large(self, request: Request, obj: Any, size: int) -> None:
        if size > LARGE:
            self._transport.observer.on_large(request.resource, _full_name(obj), size)

    async def create(self, resource: Resource, body: Mapping[str, Any], *, namespace: str = "", dry_run: bool = False) -> Json:
        """`dry_run`: nothing is stored; it is only asked whether it would be, and an unknown field is an error as it is for kubectl."""
        name = body.name if isinstance(body, PackedVolume) else (body.get("metadata") or {}).get("name")
        query = {"dryRun": "All", "fieldValidation": "Strict"} if dry_run else None
        return await self._ask("create", "POST", resource, namespace=namespace, named=str(name or ""), body=body, query=query)

    async def replace(
        self,
        resource: Resource,
        body: Mapping[str, Any] | bytes,
        *,
        name: str,
        namespace: str = "",
        subresource: str = "",
        is_current: Callable[[], bool] = always,
    ) -> Json:
        return await self._ask(
            "update", "PUT", resource, name=name, namespace=namespace, subresource=subresource, body=body, is_current=is_current
        )

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, Any] | list[Any],
        *,
        content_type: str,
        namespace: str = "",
        subresource: str = "",
    ) -> Json:
        return await self._ask(
            "patch", "PATCH", resource, name=name, namespace=namespace, subresource=subresource, body=patch, content_type=content_type
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        resource_version: str = "",
        grace_period_seconds: int | None = None,
        propagation: str = "",
        dry_run: bool = False,
        is_current: Callable[[], bool] = always,
    ) -> None:
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions := {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}:
            options["preconditions"] = preconditions
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        if propagation:
            options["propagationPolicy"] = propagation
        if dry_run:
            options["dryRun"] = ["All"]
        await self._ask("delete", "DELETE", resource, name=name, namespace=namespace, body=options, is_current=is_current)

    async def create_subresource(
        self, resource: Resource, name: str, subresource: str, body: Mapping[str, Any], *, namespace: str = ""
    ) -> Json:
        return await self._ask("create", "POST", resource, name=name, namespace=namespace, subresource=subresource, body=body)

    async def resource_for(self, api_version: str, kind: str) -> Resource:
        known = self._kinds.get(api_version, kind)
        if known is None:
            what = wire.request_text("discover", api_version, name=kind)
            request = Request("GET", wire.group_path(api_version), "discover", "", what)
            self._kinds.learn(api_version, wire.decode(await self._transport.send(request, self._limiter), what=what))
            known = self._kinds.get(api_version, kind)
        if known is None:
            raise NotFound(f"discover {api_version} {kind}: the server knows no such kind", status=404, reason="NotFound")
        return known

    async def server_version(self) -> str:
        return (await self.version_and_date())[0]

    async def version_and_date(self) -> tuple[str, str]:
        """The server's `gitVersion`, and its clock as the header Date says it; empty: it says none."""
        request = Request("GET", "/version", "get", "version", "get version")
        head, raw = await self._transport.send_for_head(request, self._limiter)
        return str(wire.decode(raw, what=request.what).get("gitVersion") or ""), str(head.headers.get("date") or "")

    async def pod_page(self, namespace: str, pod: str, port: int, path: str, *, query: Mapping[str, str]) -> bytes:
        """What a pod serves at this port, through the API server's proxy."""
        request = _request("get", "GET", PODS, name=f"{pod}:{port}", namespace=namespace, subresource=f"proxy{path}", query=query)
        return await self._transport.send(request, self._limiter)

    async def _ask(self, verb: str, method: str, resource: Resource, **of: Any) -> Json:
        request = _request(verb, method, resource, **of)
        return wire.decode(await self._transport.send(request, self._limiter), what=request.what)


def _request(
    verb: str,
    method: str,
    resource: Resource,
    *,
    name: str = "",
    namespace: str = "",
    subresource: str = "",
    named: str = "",
    query: Mapping[str, str] | None = None,
    body: Mapping[str, Any] | list[Any] | bytes | None = None,
    content_type: str = wire.JSON,
    goes_on: bool = False,
    is_current: Callable[[], bool] = always,
) -> Request:
    """`named` is the object that a POST to a collection creates. Messages name it; the path does not."""
    return Request(
        method=method,
        path=wire.path_of(resource, namespace=namespace, name=name, subresource=subresource),
        verb=verb,
        resource=f"{resource}/{subresource}" if subresource else str(resource),
        what=wire.request_text(verb, resource, namespace=namespace, name=name or named, subresource=subresource),
        query=query or {},
        body=None if body is None else wire.encode(body),
        content_type=content_type,
        goes_on=goes_on,
        is_current=is_current,
        low_priority=resource == EVENTS,  # writing Events must not delay the work they tell about
    )
