"""The debug pages: what waits for its turn, and what was decided last.

They name the claims of all tenants, so without `--debug-endpoint` only those see them who come from loopback: people with
`kubectl port-forward`, and whoever is in the network of the pod anyway.
"""

import ipaddress
from collections.abc import Callable, Mapping
from typing import Final

from sidecar.http1.requests import Request
from sidecar.observe.pages import NOT_FOUND, Answer, Page, answered, as_json, query, text

FAR_AWAY: Final = text(
    "debug pages are for loopback, such as kubectl port-forward; --debug-endpoint shows them to whoever reaches that address", status=403
)


def debug_pages(*, queues: Callable[[], object] | None, decisions: Callable[[str | None], object] | None) -> dict[str, Page]:
    """A page exists if there is something to show on it."""
    pages: dict[str, Page] = {}
    if queues is not None:
        pages["/debug/queue"] = lambda _: as_json(queues())
    if decisions is not None:
        pages["/debug/decisions"] = lambda request: as_json(decisions(query(request).get("key", [None])[0]))
    return pages


def is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


class DebugPages:
    """These pages and no others, for everybody."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        index = "".join(f"{path}\n" for path in sorted(pages))
        self._pages = {**pages, "/": lambda _: text(index)}

    def answer(self, request: Request, address: str) -> Answer:
        page = self._pages.get(request.path)
        return NOT_FOUND if page is None else answered(page, request)

    def at_once(self, request: Request) -> bool:
        return request.path not in self._pages
