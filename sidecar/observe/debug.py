"""The debug pages: what waits for its turn, and what was decided last.

They name the claims of all tenants, so there are none without `--debug-endpoint`. Where a client comes from proves nothing: a mesh's proxy
connects from loopback for everybody.
"""

from collections.abc import Callable, Mapping

from sidecar.http1.requests import Request
from sidecar.observe.pages import NOT_FOUND, Answer, Page, answered, as_json, query, text


def debug_pages(*, queues: Callable[[], object] | None, decisions: Callable[[str | None], object] | None) -> dict[str, Page]:
    """A page exists if there is something to show on it."""
    pages: dict[str, Page] = {}
    if queues is not None:
        pages["/debug/queue"] = lambda _: as_json(queues())
    if decisions is not None:
        pages["/debug/decisions"] = lambda request: as_json(decisions(query(request).get("key", [None])[0]))
    return pages


class DebugPages:
    """These pages and no others, for everybody."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        index = "".join(f"{path}\n" for path in sorted(pages))
        self._pages = {**pages, "/": lambda _: text(index)}

    def answer(self, request: Request) -> Answer:
        page = self._pages.get(request.path)
        return NOT_FOUND if page is None else answered(page, request)

    def at_once(self, request: Request) -> bool:
        return request.path not in self._pages
