"""Describes as data what a room wants to see of the cluster: each room lists its watches in `watches.py`, `sidecar.watching` opens them.

Rooms that name the same store share one watch of the API server. Every node watches every claim of the cluster, so a second watch would
double the largest cost that this program causes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from sidecar.kube.api import Change, Resource
from sidecar.kube.event_prefix import EventPrefix, Skip, reads_all
from sidecar.kube.selected import Selected
from sidecar.kube.store import Store, by_name
from sidecar.model.objects import Json

R = TypeVar("R")


def keep_nothing(obj: Json) -> None:
    """The `project` of a room that stores nothing itself and only wants to be woken by changes of what other rooms store."""


def _nothing() -> None:
    """The `on_list` of a room that does not care about lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch(Generic[R]):
    """One kind of object, as one room sees it. No function in it may block: each is called for every event of the cluster."""

    resource: Resource
    store: Store[R]
    """Where the records go. It has the indexes of all rooms."""
    wakes: Callable[[Change[R]], None]
    """Called after the store has changed. It puts the keys that the change concerns into the room's queues."""
    project: Callable[[Json], R | None] = keep_nothing
    """Returns the record of an object, or None if this room has no use for it."""
    skip: Skip | None = None
    """Tells events that need not even be parsed. None: this room reads no event that no other room reads."""
    key_of: Callable[[Json], str] = by_name
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    watch_selectors: tuple[str, ...] = ()
    """Label selectors, by each of which is watched what is listed whole. None: it is watched whole too."""
    begins_selected: bool = False
    """The first list is by these selectors too, and all is listed now and then only."""
    selected: Selected[R] | None = None
    """By which label selectors it is listed and watched, where these change under way. It counts for all rooms."""
    required: bool = False
    """The state of this watch counts for readiness."""
    optional: bool = False
    """The watch is switched off if the role does not allow it or the server lacks the kind."""
    awaited: bool = True
    """Work begins only when the first list of this watch is complete."""
    start_spread: float = 0.0
    """Seconds in which the pages of the first list after the first one are asked for, at a random moment."""
    on_list: Callable[[], None] = _nothing


def join(watches: Iterable[Watch[Any]]) -> list[Watch[Any]]:
    """Makes one watch for each store. If several rooms have a record for an object, the record of the first room is kept. So rooms that
    write objects, and need them whole, have to come before rooms that only read.
    """
    by_store: dict[int, list[Watch[Any]]] = {}
    for watch in watches:
        by_store.setdefault(id(watch.store), []).append(watch)
    return [_joined(shared) for shared in by_store.values()]


def _joined(watches: list[Watch[Any]]) -> Watch[Any]:
    if len(watches) == 1:
        return watches[0]
    projects = [watch.project for watch in watches if watch.project is not keep_nothing]
    skips = [watch.skip for watch in watches if watch.skip is not None]

    def project(obj: Json) -> Any:
        return next((record for one in projects if (record := one(obj)) is not None), None)

    def wakes(change: Change[Any]) -> None:
        for watch in watches:
            watch.wakes(change)

    # An event may be skipped only if every room that has an opinion skips it.
    def skip(prefix: EventPrefix, line: bytes) -> bool:
        return all(one(prefix, line) for one in skips)

    def on_list() -> None:
        for watch in watches:
            watch.on_list()

    return replace(
        watches[0],
        project=projects[0] if len(projects) == 1 else project,
        wakes=wakes,
        skip=skip if skips else reads_all,
        watch_selectors=_heard_by_all(watches),
        begins_selected=all(watch.begins_selected for watch in watches),
        selected=next((watch.selected for watch in watches if watch.selected is not None), None),
        required=any(watch.required for watch in watches),
        optional=all(watch.optional for watch in watches),
        awaited=any(watch.awaited for watch in watches),
        start_spread=min(watch.start_spread for watch in watches),
        on_list=on_list,
    )


def _heard_by_all(watches: list[Watch[Any]]) -> tuple[str, ...]:
    """The selectors that all rooms name. Where they differ, everything is watched, so that none hears less than it has asked for."""
    named = {watch.watch_selectors for watch in watches}
    return named.pop() if len(named) == 1 else ()
