"""What the server says about itself: API groups, resources and version."""

from collections.abc import Iterable

from hack.sim.cluster.cluster import VERSION
from hack.sim.cluster.kinds.kind import Kind
from sidecar.model.objects import Json

_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def document(path: str, kinds: Iterable[Kind]) -> Json | None:
    """The answer to a GET of this path; None if it is not about the server itself."""
    known = {kind.resource.api_version for kind in kinds}
    groups = sorted(version for version in known if "/" in version)
    match path.rstrip("/").split("/")[1:]:
        case ["version"]:
            return _version()
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(version) for version in groups]}
        case ["api", "v1"]:
            return _resources("v1", kinds)
        case ["openapi", "v3"]:
            return {"paths": {_folder(version): {"serverRelativeURL": f"/openapi/v3/{_folder(version)}"} for version in known}}
        case ["openapi", "v3", *folder] if (api_version := "/".join(folder).removeprefix("apis/").removeprefix("api/")) in known:
            return _specification(api_version, kinds)
        case ["apis", group]:
            found = [version for version in groups if version.startswith(f"{group}/")]
            return {"kind": "APIGroup", "apiVersion": "v1"} | _group(found[0]) if found else None
        case ["apis", group, version] if f"{group}/{version}" in known:
            return _resources(f"{group}/{version}", kinds)
    return None


def _version() -> Json:
    major, minor, _ = VERSION.removeprefix("v").split(".")
    return {"major": major, "minor": minor, "gitVersion": VERSION, "platform": "simulation"}


def _group(api_version: str) -> Json:
    name, version = api_version.split("/")
    entry = {"groupVersion": api_version, "version": version}
    return {"name": name, "versions": [entry], "preferredVersion": entry}


def _resources(api_version: str, kinds: Iterable[Kind]) -> Json:
    entries = [entry for kind in kinds if kind.resource.api_version == api_version for entry in _entries(kind)]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": entries}


def _entries(kind: Kind) -> Iterable[Json]:
    resource = kind.resource
    common = {"singularName": "", "namespaced": resource.namespaced, "kind": resource.kind}
    shown = common | {"name": resource.plural, "singularName": resource.kind.lower(), "verbs": list(_VERBS)}
    yield shown | ({"shortNames": list(kind.short)} if kind.short else {})
    if kind.status:
        yield common | {"name": f"{resource.plural}/status", "verbs": ["get", "patch", "update"]}
    for name, taken in kind.subresources.items():
        policy = {"group": "policy", "version": "v1"} if taken == "Eviction" else {}
        yield common | policy | {"name": f"{resource.plural}/{name}", "kind": taken, "verbs": ["create"]}


def _folder(api_version: str) -> str:
    return f"apis/{api_version}" if "/" in api_version else f"api/{api_version}"


def _specification(api_version: str, kinds: Iterable[Kind]) -> Json:
    """An OpenAPI document without schemas. It says only what kubectl looks for before a write: that the server validates fields."""
    paths = {}
    for kind in kinds:
        resource = kind.resource
        if resource.api_version == api_version:
            what = {"group": resource.group, "version": resource.version, "kind": resource.kind}
            place = f"/{_folder(api_version)}/{'namespaces/{namespace}/' if resource.namespaced else ''}{resource.plural}/{{name}}"
            parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in ("fieldValidation", "dryRun")]
            paths[place] = {"patch": {"x-kubernetes-group-version-kind": what, "x-kubernetes-action": "patch", "parameters": parameters}}
    return {"openapi": "3.0.0", "info": {"title": "simulation", "version": VERSION}, "paths": paths}
