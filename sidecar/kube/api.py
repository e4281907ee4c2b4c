"""What rooms hold of the API server: a Protocol over plain JSON, and the changes a watch brings.

The contract tests run one suite through this Protocol against every server that claims to speak it.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from sidecar.kube.errors import NotFound
from sidecar.kube.skim import PassesBy, reads_all
from sidecar.model import names
from sidecar.model.objects import Json

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object the API server serves."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True)
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", False)
CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", False)
CAPACITIES = Resource("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", True)
ATTACHMENTS = Resource("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", False)
CSI_NODES = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", False)
PODS = Resource("", "v1", "pods", "Pod", True)
NODES = Resource("", "v1", "nodes", "Node", False)
SECRETS = Resource("", "v1", "secrets", "Secret", True)
SNAPSHOTS = Resource("snapshot.storage.k8s.io", "v1", "volumesnapshots", "VolumeSnapshot", True)
SNAPSHOT_CONTENTS = Resource("snapshot.storage.k8s.io", "v1", "volumesnapshotcontents", "VolumeSnapshotContent", False)
REFERENCE_GRANTS = Resource("gateway.networking.k8s.io", "v1beta1", "referencegrants", "ReferenceGrant", True)
ATTRIBUTES_CLASSES = Resource("storage.k8s.io", "v1", "volumeattributesclasses", "VolumeAttributesClass", False)
EVENTS = Resource("", "v1", "events", "Event", True)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False)
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", True)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", True)
DRAIN_REPORTS = Resource(names.GROUP, names.REPORT_VERSION.removeprefix(f"{names.GROUP}/"), "nodedrainreports", names.REPORT_KIND, False)

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list. An empty `continue_token` marks the last one."""

    items: list[Json]
    resource_version: str
    continue_token: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """ADDED, MODIFIED, DELETED or BOOKMARK. An ERROR event never gets here: it is raised as the exception it carries."""

    type: str
    object: Json

    @property
    def resource_version(self) -> str:
        return str(self.object["metadata"]["resourceVersion"])


@dataclass(frozen=True, slots=True)
class Change(Generic[R]):
    """What a watch or a relist taught about one key. `old` None: it is new to us; `new` None: it is gone, or no longer concerns us."""

    key: str
    old: R | None
    new: R | None


def always() -> bool:
    """What is wanted however long it takes."""
    return True


class Lists(Protocol):
    """What `every` needs of the API server."""

    async def list_page(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        continue_token: str = "",
        resource_version: str = "",
    ) -> Page: ...


async def every(
    api: Lists, resource: Resource, *, namespace: str = "", label_selector: str = "", field_selector: str = "", cached: bool = False
) -> AsyncIterator[Json]:
    """Each object of a list, page by page. `cached`: as the API server remembers them, which may be a little old and costs it least."""
    token = ""
    while True:
        page = await api.list_page(
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            continue_token=token,
            resource_version="0" if cached and not token else "",
        )
        for item in page.items:
            yield item
        token = page.continue_token
        if not token:
            return


async def find(api: "KubeApi", resource: Resource, name: str, *, namespace: str = "") -> Json | None:
    """The object; None: there is none."""
    try:
        return await api.get(resource, name, namespace=namespace)
    except NotFound:
        return None


class KubeApi(Protocol):
    """The API server. Every call but `watch` ends within the request deadline, with its answer or with `kube.errors.ApiError`.

    The deadline runs from the moment the client's own limiter lets the request through.
    """

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> Json:
        """The object as it is now; NotFound when there is none."""
        ...

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
    ) -> Page:
        """One page. All pages of one list show the same moment; a continue token that has become too old raises Gone."""
        ...

    def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        passes_by: PassesBy = reads_all,
    ) -> AsyncIterator[WatchEvent]:
        """Changes after that version, with bookmarks, until the server ends the stream (normal return).

        An event that `passes_by` may be given as a bookmark: all it tells then is how far the watch has come.
        Raises Gone for a version too old, in whichever of its two forms the server says so; Unavailable when the connection
        breaks or stays silent for longer than the bookmarks' period.
        """
        ...

    async def create(self, resource: Resource, body: Mapping[str, Any], *, namespace: str = "") -> Json:
        """The object as stored; AlreadyExists when the name is taken."""
        ...

    async def replace(
        self,
        resource: Resource,
        body: Mapping[str, Any] | bytes,
        *,
        name: str,
        namespace: str = "",
        subresource: str = "",
        still: Callable[[], bool] = always,
    ) -> Json:
        """PUT. With a resourceVersion in the body that is not the newest: Conflict, and nothing is written.

        `still` is asked when the limiter lets it through, which may be a while: if it says no, Withdrawn, and nothing is sent.
        """
        ...

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
        """A failing `test` of a JSON patch is Invalid; a merge patch with an old resourceVersion is Conflict."""
        ...

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
    ) -> None:
        """With a uid or resourceVersion that is not the object's: Conflict. NotFound when it is gone already."""
        ...

    async def create_subresource(
        self, resource: Resource, name: str, subresource: str, body: Mapping[str, Any], *, namespace: str = ""
    ) -> Json:
        """POST to a subresource, such as pods/eviction; TooManyRequests when a disruption budget forbids an eviction."""
        ...

    async def resource_for(self, api_version: str, kind: str) -> Resource:
        """The resource that serves this kind, by discovery; NotFound when the server knows none."""
        ...

    async def server_version(self) -> str:
        """`gitVersion` of the server; the cheapest proof that it can be reached and accepts us."""
        ...
