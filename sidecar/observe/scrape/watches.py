"""What is counted at every event of a watch, by resource."""

from collections.abc import Iterator

from sidecar.observe.exposition import Family, counter, gauge
from sidecar.observe.labels import OURS


class Watches:
    """What is counted at every watch event, by resource."""

    def __init__(self, events: dict[str, int], heard: dict[str, float]) -> None:
        self._events = events
        self._heard = heard

    def collect(self) -> Iterator[Family]:
        events = counter(f"{OURS}reflector_events_total", "Watch events received, with bookmarks.", "resource")
        heard = gauge(
            f"{OURS}reflector_last_heard_timestamp_seconds", "When the API server last told something about this resource.", "resource"
        )
        for resource, count in self._events.items():
            events.add((resource,), count)
        for resource, at in self._heard.items():
            heard.add((resource,), at)
        yield from (events, heard)
