"""`Kind`: one row of the table of kinds. Columns that are left out have the defaults that most kinds share."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Final, Protocol

from hack.sim.cluster.kinds import checks
from hack.sim.cluster.kinds.checks import Causes
from hack.sim.cluster.kinds.schema import META, Schema
from hack.sim.cluster.refusals import bad_request
from sidecar.frozen import frozen
from sidecar.kube.api import Resource
from sidecar.model.objects import Json


class Others(Protocol):
    """The other objects, as far as admission may look at them."""

    def find(self, resource: Resource, name: str, namespace: str = "") -> Json | None: ...
    def all_of(self, resource: Resource) -> Iterable[Json]: ...


NAMED: Final[Mapping[str, str]] = {"metadata.name": "", "metadata.namespace": ""}


def _nothing(_obj: Json, *_more: object) -> None:
    return None


def _no_causes(_obj: Json, *_more: object) -> Causes:
    return []


@frozen(kw_only=True)
class Kind:
    """One kind of object and what is special about it."""

    resource: Resource
    fields: Mapping[str, Schema] = field(default_factory=dict)
    """Its top-level fields besides kind, apiVersion and metadata."""
    short: tuple[str, ...] = ()
    name_rule: Callable[[str], str] = checks.subdomain
    status: bool = False
    """It has a /status subresource, which is written separately."""
    counted: bool = False
    """It has a generation, which grows with every change of the spec."""
    unconditional: bool = True
    """It may be replaced without saying which version is meant."""
    shown_when_deleted: bool = False
    """A deletion is answered with the object instead of a Status."""
    selectable: Mapping[str, str] = field(default_factory=dict)
    """Fields a selector may name besides name and namespace, and what stands for each if it is absent."""
    older_words: bool = False
    """An unknown field selector is refused with the older text, which the core kinds have."""
    defaults: Callable[[Json], None] = _nothing
    """Fills in what was left open, at every write."""
    born: Callable[[Json, str], None] = _nothing
    """Sets what a new object has, its first status above all; the second argument is the time."""
    admit: Callable[[Json, Json | None, Others], None] = _nothing
    """Admission, which may look at other objects, refuse, and change labels. The second argument is the object as it was; without one it
    is new, has not been checked yet, and may be changed in all its parts."""
    check: Callable[[Json], Causes] = _no_causes
    check_change: Callable[[Json, Json], Causes] = _no_causes
    subresources: Mapping[str, str] = field(default_factory=dict)
    """The subresources besides /status, with the kind of body that each takes."""

    @property
    def all_fields(self) -> Mapping[str, Schema]:
        return {"kind": str, "apiVersion": str, "metadata": META, **self.fields}

    @property
    def all_selectable(self) -> Mapping[str, str]:
        return {**NAMED, **self.selectable}

    def unknown_selector(self, path: str) -> str:
        if self.older_words:
            return f"field label not supported: {path}"
        return f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"'

    def refuse_foreign(self, body: Json) -> None:
        """A body may leave out what it is, but not say that it is something else."""
        kind, version = body.get("kind") or self.resource.kind, body.get("apiVersion") or self.resource.api_version
        if (kind, version) == (self.resource.kind, self.resource.api_version):
            return
        why = f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
        raise bad_request(f'{kind} in version "{version}" cannot be handled as a {self.resource.kind}: {why}')
