"""Opens the watches of all rooms, one reflector for each store, and reports their state to health and metrics."""

from collections.abc import Callable, Iterable
from typing import Any

from sidecar.engine.health import OK, Degraded, State, Stopped
from sidecar.kube import reflector_state as reflectors
from sidecar.kube.api import KubeApi, Resource
from sidecar.kube.changing_reflector import ChangingReflector
from sidecar.kube.event_prefix import reads_all
from sidecar.kube.reflector import Reflector
from sidecar.kube.reflector_state import ReflectorState
from sidecar.kube.store import Store
from sidecar.local.watch import Watch, join
from sidecar.tools import Tools

AnyReflector = Reflector[Any] | ChangingReflector[Any]


class Watching:
    """All reflectors of the process, by what they watch. `nodes`: how many nodes watch too, if it is known."""

    def __init__(self, tools: Tools, *, nodes: Callable[[], int | None]) -> None:
        self._tools = tools
        self._nodes = nodes
        self._scope = tools.health.scope("caches", gates_ready=False)
        self._open: dict[Resource, AnyReflector] = {}

    def open(self, watches: Iterable[Watch[Any]]) -> list[tuple[Watch[Any], AnyReflector]]:
        """They are not running yet."""
        return [(watch, self._open_any(watch)) for watch in join(watches)]

    def open_one(self, watch: Watch[Any], *, kube: KubeApi | None = None) -> Reflector[Any]:
        """Of a kind whose selectors do not change."""
        found = self._open_any(watch, kube=kube)
        assert isinstance(found, Reflector)
        return found

    def _open_any(self, watch: Watch[Any], *, kube: KubeApi | None = None) -> AnyReflector:
        metrics, name = self._tools.metrics, watch.resource.plural
        scope = self._scope.scope(name, gates_ready=watch.required)
        scope.report(Degraded("the first list has not arrived yet"))
        metrics.watch_cache(name, lambda: len(watch.store))

        def listed() -> None:
            metrics.reflector_relist(name)
            watch.on_list()

        def make(selector: str, store: Store[Any], on_state: Callable[[ReflectorState], None]) -> Reflector[Any]:
            return Reflector(
                kube or self._tools.kube,
                watch.resource,
                project=watch.project,
                store=store,
                key_of=watch.key_of,
                namespace=watch.namespace,
                label_selector=selector,
                field_selector=watch.field_selector,
                watch_selectors=watch.watch_selectors,
                begins_selected=watch.begins_selected,
                nodes=self._nodes,
                optional=watch.optional,
                start_spread=watch.start_spread,
                is_silent=watch.selected is not None and selector in watch.selected.silent,
                # What is skipped by its bytes is what a selector leaves out; and of what it lets through each label is to be looked at.
                skip=watch.skip if watch.skip is not None and (watch.selected is None or not selector) else reads_all,
                on_change=watch.wakes,
                on_state=on_state,
                on_attempt=lambda: metrics.reflector_attempt(name),
                on_list=listed,
                on_event=lambda: metrics.reflector_event(name),
                clock=self._tools.clock,
                rng=self._tools.rng,
            )

        def tell(state: ReflectorState) -> None:
            scope.report(health_of_reflector(state))

        found: AnyReflector
        if watch.selected is None:
            found = make(watch.label_selector, watch.store, tell)
        else:
            found = ChangingReflector(
                kube or self._tools.kube,
                watch.resource,
                selected=watch.selected,
                make=make,
                project=watch.project,
                store=watch.store,
                key_of=watch.key_of,
                on_change=watch.wakes,
                on_state=tell,
                clock=self._tools.clock,
                rng=self._tools.rng,
            )
        self._open[watch.resource] = found
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

    def changing(self, resource: Resource) -> ChangingReflector[Any] | None:
        """The reflector, if its selectors can be changed."""
        found = self._open[resource]
        return found if isinstance(found, ChangingReflector) else None

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
