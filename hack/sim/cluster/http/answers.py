"""Carries out a request that has been parsed and permitted. It never awaits, so no other request comes in between."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from hack.sim.cluster.cluster import Cluster
from hack.sim.cluster.http import routes, tables
from hack.sim.cluster.http.api_faults import ApiFault
from hack.sim.cluster.http.protobuf import PROTOBUF, as_json, is_protobuf
from hack.sim.cluster.http.routes import Target
from hack.sim.cluster.refusals import bad_request, invalid, required
from hack.sim.cluster.storage.history import Stored
from hack.sim.cluster.storage.reading import Listed, Query
from hack.sim.cluster.writes.deletion import Options, options_of
from hack.sim.cluster.writes.patches import APPLY_PATCH, PATCH_TYPES, unknown_patch_type
from sidecar.frozen import frozen
from sidecar.model.objects import Json


@frozen
class Incoming:
    """A request besides its path and method."""

    query: Mapping[str, str]
    raw: bytes = b""
    accept: str = ""
    content_type: str = ""
    user_agent: str = ""

    @property
    def wants_table(self) -> bool:
        return routes.wants_table(self.accept)

    @property
    def manager(self) -> str:
        return routes.manager(self.query, self.user_agent)

    def dry_run(self, options: str) -> bool:
        return routes.dry_run(self.query, options)


class Answers:
    """`issue_token` gives a token for a service account, by namespace and name."""

    def __init__(self, cluster: Cluster, *, issue_token: Callable[[str, str], str]) -> None:
        self._cluster = cluster
        self._issue_token = issue_token

    def answer(self, target: Target, given: Incoming, fault: ApiFault) -> tuple[int, bytes]:
        """Returns status code and body of a success."""
        routes.demand_acceptable(given.accept)
        match target.verb:
            case "list" | "deletecollection":
                return 200, self._list(target, given, fault)
            case "get":
                return 200, self._shown(target, given, self._get(target, fault))
            case "delete":
                return 200, self._delete(target, _delete_options(given))
            case "create":
                return 201, self._create(target, given)
            case "update":
                return 200, self._update(target, given)
            case _:
                return self._patch(target, given)

    def _get(self, target: Target, fault: ApiFault) -> Stored:
        resource, namespace = target.resource, target.namespace
        if not fault.stale:
            return self._cluster.get(resource, target.name, namespace=namespace, subresource=target.subresource)
        query = Query(namespace=namespace, fields=f"metadata.name={target.name}", version=self._before(fault), match="Exact")
        found = self._cluster.list(resource, query).items
        return found[0] if found else self._cluster.get(resource, "", namespace=namespace)

    def _list(self, target: Target, given: Incoming, fault: ApiFault) -> bytes:
        query = routes.query_of(target, given.query)
        if fault.stale and not query.token:
            query = replace(query, version=self._before(fault), match="Exact")
        page = self._cluster.list(target.resource, query)
        if target.verb == "deletecollection":
            for item in page.items:
                meta = item.obj["metadata"]
                self._cluster.delete(target.resource, meta["name"], namespace=meta.get("namespace", ""), options=Options(uid=meta["uid"]))
        if given.wants_table:
            return tables.table(target.resource, [item.obj for item in page.items], page.meta, now=self._cluster.now())
        return _list_body(page)

    def _before(self, fault: ApiFault) -> str:
        return str(max(1, self._cluster.revision - fault.stale))

    def _shown(self, target: Target, given: Incoming, stored: Stored) -> bytes:
        if not given.wants_table:
            return stored.whole
        meta = {"resourceVersion": stored.obj["metadata"]["resourceVersion"]}
        return tables.table(target.resource, [stored.obj], meta, now=self._cluster.now())

    def _delete(self, target: Target, options: Options) -> bytes:
        stored, gone = self._cluster.delete(target.resource, target.name, namespace=target.namespace, options=options)
        if not gone or self._cluster.kind(target.resource).shown_when_deleted:
            return stored.whole
        details = {
            "name": target.name,
            "group": target.resource.group,
            "kind": target.resource.plural,
            "uid": stored.obj["metadata"]["uid"],
        }
        shown = {key: value for key, value in details.items() if value}
        return json.dumps({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": shown}).encode()

    def _create(self, target: Target, given: Incoming) -> bytes:
        resource, namespace = target.resource, target.namespace
        body = _object_in(given, self._cluster.kind(resource).subresources.get(target.subresource, resource.kind))
        if target.subresource == "token":
            return self._token(target)
        if target.subresource:
            return json.dumps(self._cluster.post(resource, target.name, target.subresource, body, namespace=namespace)).encode()
        trial = given.dry_run("CreateOptions")
        strict = routes.strict(given.query)
        return self._cluster.create(resource, body, namespace=namespace, dry_run=trial, strict=strict, manager=given.manager).whole

    def _token(self, target: Target) -> bytes:
        self._cluster.get(target.resource, target.name, namespace=target.namespace)
        status = {"token": self._issue_token(target.namespace, target.name), "expirationTimestamp": self._cluster.time(3600)}
        return json.dumps({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": {}, "status": status}).encode()

    def _update(self, target: Target, given: Incoming) -> bytes:
        return self._cluster.replace(
            target.resource,
            _object_in(given, target.resource.kind),
            name=target.name,
            namespace=target.namespace,
            subresource=target.subresource,
            dry_run=given.dry_run("UpdateOptions"),
            strict=routes.strict(given.query),
        ).whole

    def _patch(self, target: Target, given: Incoming) -> tuple[int, bytes]:
        if given.content_type not in PATCH_TYPES:
            raise unknown_patch_type()
        if given.content_type == APPLY_PATCH and not given.query.get("fieldManager"):
            raise invalid("PatchOptions", "meta.k8s.io", "", [required("fieldManager", "is required for apply patch")])
        new = self._cluster.store.stored(self._cluster.kind(target.resource), target.name, target.namespace) is None
        stored = self._cluster.patch(
            target.resource,
            target.name,
            _patch_in(given.raw),
            content_type=given.content_type,
            namespace=target.namespace,
            subresource=target.subresource,
            dry_run=given.dry_run("PatchOptions"),
            manager=given.manager,
        )
        return (201 if new else 200), stored.whole


def name_in(raw: bytes) -> str:
    """The name of an object that is about to be created; empty if the body does not show it."""
    try:
        return str(json.loads(raw)["metadata"]["name"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""


def _object_in(given: Incoming, kind: str) -> Json:
    routes.demand_json_body(given.content_type)
    try:
        value = _parsed(given)
    except ValueError as error:
        raise routes.unreadable(kind, str(error), given.raw) from None
    return routes.demand_object(value, kind, given.raw)


def _delete_options(given: Incoming) -> Options:
    if not given.raw:
        grace = routes.number(given.query, "gracePeriodSeconds") if "gracePeriodSeconds" in given.query else None
        policy, trial = given.query.get("propagationPolicy"), given.query.get("dryRun")
        return options_of({"gracePeriodSeconds": grace, "propagationPolicy": policy, "dryRun": trial})
    routes.demand_json_body(given.content_type)
    try:
        return options_of(_parsed(given))
    except ValueError as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None


def _patch_in(raw: bytes) -> Any:
    try:
        return _json(raw)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from None


def _parsed(given: Incoming) -> Any:
    if given.content_type == PROTOBUF and is_protobuf(given.raw):
        return as_json(given.raw)
    return _json(given.raw)


def _json(raw: bytes) -> Any:
    def no_number(word: str) -> None:
        raise ValueError(f"invalid character '{word[0]}' looking for beginning of value")

    return json.loads(raw.decode(errors="replace"), parse_constant=no_number)


def _list_body(page: Listed) -> bytes:
    head = {"kind": f"{page.resource.kind}List", "apiVersion": page.resource.api_version, "metadata": page.meta}
    return json.dumps(head).encode()[:-1] + b',"items":[' + b",".join(item.item for item in page.items) + b"]}"
