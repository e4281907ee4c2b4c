"""Opens the watches of all rooms, one reflector for each store, and reports their state to health and metrics."""

from collections.abc import Iterable
from typing import Any

from sidecar.engine.health import OK, Degraded, State, Stopped
from sidecar.kube import reflector_state as reflectors
from sidecar.kube.api import KubeApi, Resource
from sidecar.kube.event_prefix import reads_all
from sidecar.kube.reflector import Reflector
from sidecar.kube.reflector_state import ReflectorState
from sidecar.local.watch import Watch, join
from sidecar.tools import Tools


class Watching:
    """All reflectors of the process, by what they watch."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._scope = tools.health.scope("caches", gates_ready=False)
        self._open: dict[Resource, Reflector[Any]] = {}

    def open(self, watches: Iterable[Watch[Any]]) -> list[tuple[Watch[Any], Reflector[Any]]]:
        """They are not running yet."""
        return [(watch, self.open_one(watch)) for watch in join(watches)]

    def open_one(self, watch: Watch[Any], *, kube: KubeApi | None = None) -> Reflector[Any]:
        metrics, name = self._tools.metrics, watch.resource.plural
        scope = self._scope.scope(name, gates_ready=watch.required)
        scope.report(Degraded("the first list has not arrived yet"))
        metrics.watch_cache(name, lambda: len(watch.store))

        def listed() -> None:
            metrics.reflector_relist(name)
            watch.on_list()

        found = self._open[watch.resource] = Reflector(
            kube or self._tools.kube,
            watch.resource,
            project=watch.project,
            store=watch.store,
            key_of=watch.key_of,
            namespace=watch.namespace,
            label_selector=watch.label_selector,
            field_selector=watch.field_selector,
            watch_selectors=watch.watch_selectors,
            optional=watch.optional,
            skip=watch.skip or reads_all,
            on_change=watch.wakes,
            on_state=lambda state: scope.report(health_of_reflector(state)),
            on_attempt=lambda: metrics.reflector_attempt(name),
            on_list=listed,
            on_event=lambda: metrics.reflector_event(name),
            clock=self._tools.clock,
            rng=self._tools.rng,
        )
        return found

    def state(self, resource: Resource) -> ReflectorState:
        """KeyError if no room watches it."""
        return self._open[resource].state

    def version(self, resource: Resource) -> str:
        """Up to which resourceVersion all that its watches bring has come; empty while a list is due. KeyError if no room watches it."""
        return self._open[resource].resource_version

    def has_synced(self, resource: Resource) -> bool:
        """Whether it is watched, and its first list is complete."""
        return resource in self._open and self._open[resource].has_synced

    def is_watching(self, resource: Resource) -> bool:
        """Whether its watch is open and known to work."""
        return self._open[resource].is_watching


def health_of_reflector(state: ReflectorState) -> State:
    """What a reflector's state means for health. An optional one that is off stays visible, and does not make the program unready."""
    match state:
        case reflectors.Synced():
            return OK()
        case reflectors.Off(why=why):
            return Stopped(f"off: {why}")
        case reflectors.Listing(why) | reflectors.Degraded(why) | reflectors.Denied(why):
            return Degraded(why)
