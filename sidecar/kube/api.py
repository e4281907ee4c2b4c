"""The API server as rooms see it: the Protocol `KubeApi` over plain JSON, the resources we use, and the changes a watch brings.

The contract tests run one suite through this Protocol, against real servers and against the simulated one.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from sidecar.kube.errors import NotFound
from sidecar.kube.event_prefix import Skip, reads_all
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


CLAIMS = Resource("", "v1", "persistentvolumeclaims", names.CLAIM, True)
VOLUMES = Resource("", "v1", "persistentvolumes", names.VOLUME, False)
CLASSES = Resource(names.STORAGE_GROUP, "v1", "storageclasses", names.STORAGE_CLASS, False)
CAPACITIES = Resource(names.STORAGE_GROUP, "v1", "csistoragecapacities", names.CAPACITY, True)
ATTACHMENTS = Resource(names.STORAGE_GROUP, "v1", "volumeattachments", names.ATTACHMENT, False)
CSI_DRIVERS = Resource(names.STORAGE_GROUP, "v1", "csidrivers", names.CSI_DRIVER, False)
CSI_NODES = Resource(names.STORAGE_GROUP, "v1", "csinodes", names.CSI_NODE, False)
PODS = Resource("", "v1", "pods", names.POD, True)
NODES = Resource("", "v1", "nodes", names.NODE, False)
SECRETS = Resource("", "v1", "secrets", names.SECRET, True)
SNAPSHOTS = Resource(names.SNAPSHOT_GROUP, "v1", "volumesnapshots", names.SNAPSHOT, True)
SNAPSHOT_CONTENTS = Resource(names.SNAPSHOT_GROUP, "v1", "volumesnapshotcontents", names.SNAPSHOT_CONTENT, False)
REFERENCE_GRANTS = Resource(names.GATEWAY_GROUP, "v1beta1", "referencegrants", names.REFERENCE_GRANT, True)
ATTRIBUTES_CLASSES = Resource(names.STORAGE_GROUP, "v1", "volumeattributesclasses", names.ATTRIBUTES_CLASS, False)
EVENTS = Resource("", "v1", "events", names.EVENT, True)
CONFIG_MAPS = Resource("", "v1", "configmaps", names.CONFIG_MAP, True)
NAMESPACES = Resource("", "v1", "namespaces", names.NAMESPACE, False)
BUDGETS = Resource(names.POLICY_GROUP, "v1", "poddisruptionbudgets", names.DISRUPTION_BUDGET, True)
LEASES = Resource(names.COORDINATION_GROUP, "v1", "leases", names.LEASE, True)
STATEFUL_SETS = Resource(names.APPS_GROUP, "v1", "statefulsets", names.STATEFUL_SET, True)
REPLICA_SETS = Resource(names.APPS_GROUP, "v1", "replicasets", names.REPLICA_SET, True)
DAEMON_SETS = Resource(names.APPS_GROUP, "v1", "daemonsets", names.DAEMON_SET, True)
DEPLOYMENTS = Resource(names.APPS_GROUP, "v1", "deployments", names.DEPLOYMENT, True)
ACCESS_REVIEWS = Resource(names.AUTHORIZATION_GROUP, "v1", "selfsubjectaccessreviews", names.ACCESS_REVIEW, False)
REVIEWS_OF_OTHERS = Resource(names.AUTHORIZATION_GROUP, "v1", "subjectaccessreviews", names.REVIEW_OF_OTHERS, False)
DRAIN_REPORTS = Resource(names.GROUP, names.REPORT_VERSION.removeprefix(f"{names.GROUP}/"), "nodedrainreports", names.REPORT_KIND, False)
MAINTENANCES = Resource(names.GROUP, "v1alpha1", "plannedmaintenances", names.MAINTENANCE_KIND, False)
INSTANCES = Resource("kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance", True)
DRAIN_RULES = Resource(names.GROUP, "v1alpha1", "drainrules", names.DRAIN_RULE_KIND, True)

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list. An empty `continue_token` marks the last one."""

    items: list[Json]
    resource_version: str
    continue_token: str


TOO_LARGE = "TOO_LARGE"
"""The type of an event whose object is larger than any that etcd stores. It has no more of it than what identifies it."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """ADDED, MODIFIED, DELETED, BOOKMARK or TOO_LARGE. An ERROR event is raised as an exception instead."""

    type: str
    object: Json

    @property
    def resource_version(self) -> str:
        return str(self.object["metadata"]["resourceVersion"])


@dataclass(frozen=True, slots=True)
class Change(Generic[R]):
    """What a list or a watch changed for one key. `old` None: the key is new. `new` None: the object is gone or concerns us no longer."""

    key: str
    old: R | None
    new: R | None


def always() -> bool:
    """For requests that are still wanted however long they waited."""
    return True


Take = Callable[[Json], bool]
"""Is offered an object, and says whether the page can do without it."""


def take_none() -> Take:
    """For lists whose objects are all wanted in the page."""
    return lambda obj: False


class Lists(Protocol):
    """The part of `KubeApi` that `records` uses."""

    async def list_page(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        continue_token: str = "",
        resource_version: str = "",
        begin: Callable[[], Take] = take_none,
    ) -> Page: ...


async def every(
    api: Lists, resource: Resource, *, namespace: str = "", label_selector: str = "", field_selector: str = ""
) -> AsyncIterator[Json]:
    """Each object of a list, whole, page by page. `records` holds less."""
    scope = {"namespace": namespace, "label_selector": label_selector, "field_selector": field_selector}
    token = ""
    while True:
        page = await api.list_page(resource, continue_token=token, begin=take_none, **scope)
        for item in page.items:
            yield item
        token = page.continue_token
        if not token:
            return


async def records(
    api: Lists, resource: Resource, of: Callable[[Json], R | None], *, cached: bool = False, **scope: str
) -> AsyncIterator[R]:
    """The record that `of` makes of each object, page by page, if it makes one.

    `cached`: from the API server's cache, which may be a little old and costs the server least. There a list has no pages; the objects
    themselves are not held.
    """
    token = ""
    while True:
        found: list[R] = []

        def take(obj: Json) -> bool:
            record = of(obj)
            if record is not None:
                found.append(record)  # noqa: B023 - it is called while its page is read
            return True

        def begin() -> Take:
            found.clear()  # noqa: B023
            return take

        page = await api.list_page(
            resource, continue_token=token, resource_version="0" if cached and not token else "", begin=begin, **scope
        )
        for obj in page.items:
            take(obj)
        for record in found:
            yield record
        token = page.continue_token
        if not token:
            return


async def find(api: "KubeApi", resource: Resource, name: str, *, namespace: str = "") -> Json | None:
    """The object, or None if there is none."""
    try:
        return await api.get(resource, name, namespace=namespace)
    except NotFound:
        return None


class Reached(Protocol):
    """The cluster behind a client. `context` is that of the kubeconfig, None without one; `in_pod`: it is the one of this pod."""

    @property
    def server(self) -> str: ...
    @property
    def context(self) -> str | None: ...
    @property
    def in_pod(self) -> bool: ...
    @property
    def namespace(self) -> str: ...


class KubeApi(Protocol):
    """The API server. Every call but `watch` ends within the request deadline, by its answer or by a `kube.errors.ApiError`.

    The deadline begins when the client's own limiter lets the request through.
    """

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> Json:
        """The object as it is now; NotFound if there is none."""
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
        begin: Callable[[], Take] = take_none,
        skip: Skip = reads_all,
    ) -> Page:
        """One page, with at most `limit` objects, and fewer where objects are large. All pages of one list show the same moment; a continue
        token that has become too old raises Gone.

        What `begin` returns may be offered the objects one by one as they arrive. What it takes is not in the page, so nobody has to hold
        it. `begin` is called again if the page is begun again, with fewer objects; a page may also fail after some were taken.
        An object for which `skip` is true may be left out.
        """
        ...

    def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        skip: Skip = reads_all,
    ) -> AsyncIterator[WatchEvent]:
        """Changes after that version, with bookmarks, until the server ends the stream (normal return).

        An event for which `skip` is true may be given as a bookmark, which only tells how far the watch has come.
        Raises Gone for a version that is too old, whether the server says so by status or by event; Unavailable if the connection
        breaks, or is silent for longer than the time between bookmarks.
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
        is_current: Callable[[], bool] = always,
    ) -> Json:
        """PUT. With a resourceVersion in the body that is not the newest: Conflict, and nothing is written.

        `is_current` is called when the limiter lets the request through, which may take a while. If it returns False, nothing is sent
        and Withdrawn is raised.
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
        dry_run: bool = False,
        is_current: Callable[[], bool] = always,
    ) -> None:
        """Conflict if a uid or resourceVersion is given that is not the object's; NotFound if it is gone already.

        `dry_run`: it is only asked whether rights, policies and webhooks would let it be deleted. `is_current`: as in `replace`.
        """
        ...

    async def create_subresource(
        self, resource: Resource, name: str, subresource: str, body: Mapping[str, Any], *, namespace: str = ""
    ) -> Json:
        """POST to a subresource, such as pods/eviction; TooManyRequests when a disruption budget forbids an eviction."""
        ...

    async def resource_for(self, api_version: str, kind: str) -> Resource:
        """The resource that serves this kind, by discovery; NotFound if the server serves none."""
        ...

    async def server_version(self) -> str:
        """The server's `gitVersion`: the cheapest proof that it can be reached and accepts our credentials."""
        ...
