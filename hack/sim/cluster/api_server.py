"""`ApiServer`: the API server's verbs on plain values. Each either happens wholly or raises `Refused`, and takes no time."""

import json
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from hack.sim.cluster import deletion, refusals, rules
from hack.sim.cluster.deletion import Options
from hack.sim.cluster.kinds import TABLE, Kind, fill
from hack.sim.cluster.patches import APPLY_PATCH, patched
from hack.sim.cluster.reading import Listed, Query, Watch, list_page
from hack.sim.cluster.refusals import Refused
from hack.sim.cluster.schema import Misshapen, stored_form
from hack.sim.cluster.store import Store, Stored, key_of
from sidecar.kube.api import NAMESPACES, Resource
from sidecar.model.objects import Json

VERSION: Final = "v1.36.3"
_FIRST_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
_NAME_SIGNS: Final = "bcdfghjklmnpqrstvwxz2456789"
_RANDOM_SIGNS: Final = 5
_LONGEST_BASE: Final = 58
_NAME_ATTEMPTS: Final = 8
# What a client cannot write. It is taken over from the stored object.
_KEPT: Final = ("uid", "namespace", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


class ApiServer:
    """All objects, and the rules by which they change.

    `clock` is the wall clock in seconds, `rng` gives numbers in [0, 1).
    Objects handed in are copied; objects handed out are shared and must not be changed.
    """

    def __init__(self, *, clock: Callable[[], float], rng: Callable[[], float]) -> None:
        self.store = Store(TABLE)
        self._clock = clock
        self._rng = rng
        for name in _FIRST_NAMESPACES:
            self.create(NAMESPACES, {"metadata": {"name": name}})

    @property
    def revision(self) -> int:
        return self.store.revision

    def now(self, seconds: float = 0.0) -> str:
        """The time, or that so many seconds from now, in the form that objects use."""
        return datetime.fromtimestamp(int(self._clock() + seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def kind(self, resource: Resource, subresource: str = "") -> Kind:
        kind = self.store.kinds.get(resource)
        if kind is None or (subresource and not (subresource == "status" and kind.status) and subresource not in kind.subresources):
            raise refusals.no_such_resource()
        return kind

    def get(self, resource: Resource, name: str, *, namespace: str = "", subresource: str = "") -> Stored:
        return self._existing(self.kind(resource, subresource), name, namespace)

    def list(self, resource: Resource, query: Query) -> Listed:
        return list_page(self.store, self.kind(resource), query)

    def watch(self, resource: Resource, query: Query, *, wake: Callable[[], None]) -> Watch:
        return Watch(self.store, self.kind(resource), query, wake=wake)

    def compact(self) -> None:
        """Forgets all history: watches and continue tokens from before are answered with 410."""
        self.store.forget()

    def create(self, resource: Resource, body: Mapping[str, Any], *, namespace: str = "", dry_run: bool = False) -> Stored:
        kind = self.kind(resource)
        new = self._formed(kind, body)
        self._place(kind, new, namespace)
        self._name(kind, new)
        self._bear(kind, new)
        name = new["metadata"].get("name", "")
        _refuse_if(kind, name, rules.metadata(new["metadata"], name_rule=kind.name_rule) + kind.check(new))
        if self.store.stored(kind, name, namespace) is not None:
            raise refusals.about(resource, name, 409, "AlreadyExists", "already exists")
        return Stored(new) if dry_run else self.store.put(kind, key_of(name, new["metadata"].get("namespace", "")), new)

    def replace(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        *,
        name: str,
        namespace: str = "",
        subresource: str = "",
        dry_run: bool = False,
    ) -> Stored:
        kind = self.kind(resource, subresource)
        new = self._formed(kind, body)
        _same_name(new, name)
        old = self._existing(kind, name, namespace)
        _same_namespace(new, old.obj["metadata"].get("namespace", ""), kind)
        uid, known = new["metadata"].get("uid"), old.obj["metadata"]["uid"]
        if uid and uid != known:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {known}"
            raise refusals.conflict(resource.plural, resource.group, name, why)
        return self._update(kind, old, new, subresource=subresource, dry_run=dry_run)

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        *,
        content_type: str,
        namespace: str = "",
        subresource: str = "",
        dry_run: bool = False,
    ) -> Stored:
        kind = self.kind(resource, subresource)
        if content_type == APPLY_PATCH and self.store.stored(kind, name, namespace) is None:
            _same_name(patch, name)
            return self.create(resource, patch, namespace=namespace, dry_run=dry_run)
        old = self._existing(kind, name, namespace)
        result = patched(old.obj, patch, content_type)
        try:
            kind.refuse_foreign(result)
            new = _with_meta(stored_form(result, kind.all_fields, kind=resource.kind))
        except (Misshapen, Refused) as error:
            raise refusals.invalid("", "", "", [refusals.wrong("patch", json.dumps(result), str(error))]) from None
        _same_name(new, name)
        _same_namespace(new, namespace, kind)
        return self._update(kind, old, new, subresource=subresource, dry_run=dry_run)

    def delete(self, resource: Resource, name: str, *, namespace: str = "", options: Options | None = None) -> tuple[Stored, bool]:
        """Returns the object as it was last, and whether it is gone. With finalizers or a grace period it is only marked."""
        kind = self.kind(resource)
        return deletion.delete(self, kind, self._existing(kind, name, namespace), options or Options())

    def post(self, resource: Resource, name: str, subresource: str, body: Mapping[str, Any], *, namespace: str = "") -> Json:
        """POST to a subresource."""
        kind = self.kind(resource, subresource)
        return deletion.post(self, kind, name, subresource, body, namespace=namespace)

    def collect_garbage(self) -> int:
        """Does all that the garbage collector would do. Returns how many objects went."""
        return deletion.collect(self)

    def rewrite(self, kind: Kind, old: Stored, new: Json) -> Stored:
        """Stores a change that no rule needs to check, unless nothing has changed. An object that waited only for this is deleted."""
        key = key_of(new["metadata"]["name"], new["metadata"].get("namespace", ""))
        if new == old.obj:
            return old
        if deletion.is_over(new):
            self.store.drop(kind, key)
            return Stored(new).at(self.store.revision)
        return self.store.put(kind, key, new | {"metadata": dict(new["metadata"])})

    def _update(self, kind: Kind, old: Stored, new: Json, *, subresource: str, dry_run: bool) -> Stored:
        self._check_version(kind, old, new)
        result = _combined(kind, old.obj, new, subresource)
        fill(result, kind.defaults)
        meta, was = result["metadata"], old.obj["metadata"]
        causes = rules.metadata(meta, name_rule=lambda _: "") + rules.metadata_change(meta, was)
        if subresource != "status":
            causes += kind.check(result) + kind.check_change(result, old.obj) + rules.changed(result, old.obj, kind.fixed)
        _refuse_if(kind, was["name"], causes)
        kind.admit(result, old.obj, self.store)
        if kind.counted and result.get("spec") != old.obj.get("spec"):
            meta["generation"] = was.get("generation", 0) + 1
        return Stored(result) if dry_run else self.rewrite(kind, old, result)

    def _check_version(self, kind: Kind, old: Stored, new: Json) -> None:
        resource, was = kind.resource, old.obj["metadata"]
        version = new["metadata"].get("resourceVersion") or "0"
        if version == "0" and not kind.unconditional:
            cause = refusals.wrong("metadata.resourceVersion", 0, "must be specified for an update")
            raise refusals.invalid(resource.plural, resource.group, was["name"], [cause])
        if version not in ("0", was["resourceVersion"]):
            why = "the object has been modified; please apply your changes to the latest version and try again"
            raise refusals.conflict(resource.plural, resource.group, was["name"], why)

    def _existing(self, kind: Kind, name: str, namespace: str) -> Stored:
        stored = self.store.stored(kind, name, namespace)
        if stored is None:
            raise refusals.not_found(kind.resource, name)
        return stored

    def _formed(self, kind: Kind, body: Mapping[str, Any]) -> Json:
        kind.refuse_foreign(dict(body))
        resource = kind.resource
        prefix = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
        try:
            new = _with_meta(stored_form(dict(body), kind.all_fields, kind=resource.kind))
        except Misshapen as error:
            raise refusals.bad_request(prefix + str(error)) from None
        return {"kind": resource.kind, "apiVersion": resource.api_version} | new

    def _place(self, kind: Kind, new: Json, namespace: str) -> None:
        if not kind.resource.namespaced:
            new["metadata"].pop("namespace", None)
            return
        _same_namespace(new, namespace, kind)
        found = self.store.find(NAMESPACES, namespace)
        if found is None:
            raise refusals.not_found(NAMESPACES, namespace)
        if found["metadata"].get("deletionTimestamp"):
            raise refusals.namespace_ends(kind.resource, new["metadata"].get("name", ""), namespace)
        new["metadata"]["namespace"] = namespace

    def _name(self, kind: Kind, new: Json) -> None:
        """Names the object by `generateName` if it has no name. After enough attempts the name may be one that is taken."""
        meta = new["metadata"]
        if meta.get("name") or not meta.get("generateName"):
            return
        for _ in range(_NAME_ATTEMPTS):
            tail = "".join(_NAME_SIGNS[int(self._rng() * len(_NAME_SIGNS))] for _ in range(_RANDOM_SIGNS))
            meta["name"] = meta["generateName"][:_LONGEST_BASE] + tail
            if self.store.stored(kind, meta["name"], meta.get("namespace", "")) is None:
                return

    def _bear(self, kind: Kind, new: Json) -> None:
        meta = new["metadata"]
        if meta.pop("resourceVersion", None):
            raise refusals.internal("resourceVersion should not be set on objects to be created")
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"):
            meta.pop(key, None)
        now = self.now()
        digits = "".join(f"{int(self._rng() * 2**32):08x}" for _ in range(4))
        meta |= {"uid": str(uuid.UUID(hex=digits, version=4)), "creationTimestamp": now}
        if kind.counted:
            meta["generation"] = 1
        if "ownerReferences" in meta:
            meta["ownerReferences"] = list({owner.get("uid"): owner for owner in meta["ownerReferences"]}.values())
        fill(new, kind.defaults)
        kind.bear(new)
        kind.admit(new, None, self.store)
        # One entry without the fields' names: who wrote which of them nobody tracks here.
        entry = {"manager": "unknown", "operation": "Update", "apiVersion": kind.resource.api_version, "time": now}
        meta["managedFields"] = [entry | {"fieldsType": "FieldsV1", "fieldsV1": {}}]


def _combined(kind: Kind, old: Json, new: Json, subresource: str) -> Json:
    """What a write by this path may change: by /status the status, by the object's own path everything else."""
    was = old["metadata"]
    meta = dict(new["metadata"]) | {"resourceVersion": was["resourceVersion"]}
    for key in ("generation", "managedFields"):
        meta.pop(key, None)
        if key in was:
            meta[key] = was[key]
    for key in _KEPT:
        if key in was:
            meta.setdefault(key, was[key])
    if subresource == "status":
        result = {key: value for key, value in old.items() if key != "status"}
        apart = {"status": new.get("status", {})}
    else:
        result = {key: value for key, value in new.items() if not (key == "status" and kind.status)}
        apart = {"status": old["status"]} if kind.status and "status" in old else {}
        if kind.resource == NAMESPACES:
            result["spec"] = old["spec"]
    return {"kind": old["kind"], "apiVersion": old["apiVersion"]} | result | {"metadata": meta} | apart


def _refuse_if(kind: Kind, name: str, causes: list[str]) -> None:
    if causes:
        raise refusals.invalid(kind.resource.kind, kind.resource.group, name, causes)


def _with_meta(obj: Json) -> Json:
    obj.setdefault("metadata", {})
    return obj


def _same_name(obj: Any, name: str) -> None:
    own = (obj.get("metadata") or {}).get("name") or ""
    if not own:
        raise refusals.bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if own != name:
        raise refusals.bad_request(f"the name of the object ({own}) does not match the name on the URL ({name})")


def _same_namespace(obj: Json, namespace: str, kind: Kind) -> None:
    if not kind.resource.namespaced:
        obj["metadata"].pop("namespace", None)  # a namespace on such an object means nothing, but is no error
        return
    own = obj["metadata"].get("namespace") or ""
    if own and own != namespace:
        raise refusals.bad_request("the namespace of the provided object does not match the namespace sent on the request")
