"""From where a reflector has its events: one watch, or, in `selected_watches`, several by label that look like one."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol

from sidecar.kube.api import KubeApi, Resource, WatchEvent
from sidecar.kube.event_prefix import Skip
from sidecar.model.objects import Json


class WatchSource(Protocol):
    """What happens after a list, in order for each object."""

    requests: int
    """Of how many watches it consists."""

    @property
    def is_proven(self) -> bool:
        """Whether each of its watches has told something since they were opened."""
        ...

    @property
    def furthest(self) -> str:
        """The newest version that any of its watches has told."""
        ...

    def shown(self, key: str, obj: Json) -> None:
        """A page of a list has this object, and the store has been told."""
        ...

    def begin(self, versions: Sequence[str]) -> None:
        """A list is complete. The watches continue from its version, or each from that of its own list."""
        ...

    def events(self) -> AsyncGenerator[WatchEvent, None]:
        """What is new since the events that were `handled`. Ends, or raises ApiError, as soon as one of its watches does."""
        ...

    def handled(self, event: WatchEvent) -> str:
        """Returns up to which version all has been told; it is called for the last event before the next one is asked for."""
        ...


class OneWatch:
    """The events as the server tells them."""

    requests = 1

    def __init__(self, api: KubeApi, resource: Resource, *, scope: Mapping[str, str], skip: Skip) -> None:
        self._api = api
        self._resource = resource
        self._scope = scope
        self._skip = skip
        self.furthest = ""
        self.is_proven = True
        """An event is the proof."""

    def shown(self, key: str, obj: Json) -> None:
        """All that is there will be told of."""

    def begin(self, versions: Sequence[str]) -> None:
        (self.furthest,) = versions

    def events(self) -> AsyncGenerator[WatchEvent, None]:
        return self._api.watch(self._resource, resource_version=self.furthest, skip=self._skip, **self._scope)  # type: ignore[return-value]

    def handled(self, event: WatchEvent) -> str:
        self.furthest = event.resource_version
        return self.furthest
