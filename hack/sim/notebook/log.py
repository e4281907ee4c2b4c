"""The transcript of a notebook: who wrote what to the API server and what that changed, driver calls, lives and deaths.

       3.412  n1         claim data-0: selected-node=n1
       3.430  n1         CreateVolume pvc-<data-0>: OK

Times are virtual seconds. Only effects are shown, not reads, watches and GetCapacity. After each write the server is
read at once, so the line says what the write changed, or that it changed nothing. Uids are replaced by the names of claims.
"""

import re
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Final

from hack.sim.cluster import Cluster
from hack.sim.notebook import words
from hack.sim.world.transcript import Transcript
from sidecar.kube.api import CLAIMS, EVENTS, Resource
from sidecar.model.objects import Json

_ANSWER: Final = "  | "
_WRITE: Final = re.compile(r"(create|update|patch|delete) (\S+) ([^:(]*)(.*)")


class NotebookLog(Transcript):
    """A transcript whose lines are meant for people; what nobody needs is left out."""

    def __init__(self, clock: Callable[[], float], cluster: Cluster) -> None:
        super().__init__(clock)
        self._cluster = cluster
        self._known: dict[Resource, dict[str, Json]] = {}
        self._names: dict[str, str] = {}

    def tell(self, where: str, what: str) -> None:
        for line in self._lines_of(what):
            super().tell(where, self.named(line))

    def since(self, mark: int) -> list[str]:
        """The lines after that many. Within one instant they are sorted: messages take time, so their order there means nothing."""
        return [line for _, lines in groupby(self.lines[mark:], key=_instant) for line in sorted(lines, key=_actor_and_text)]

    def show(self, lines: Iterable[str]) -> None:
        """The answer to a question, as opposed to something that happened."""
        self.lines += [_ANSWER + self.named(line) for line in lines] or [f"{_ANSWER}(nothing)"]

    def named(self, text: str) -> str:
        """Replaces uids by the names of claims."""
        self._learn_names()
        return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", lambda found: self._names.get(found[0], found[0]), text)

    def unnamed(self, text: str) -> str:
        """The reverse of `named`: pvc-<data-0> becomes the name of an object."""
        uids = {name: uid for uid, name in self._names.items()}
        return re.sub(r"<[^>]+>'*", lambda found: uids.get(found[0], found[0]), text)

    def objects(self, resource: Resource) -> list[Json]:
        return list(self._cluster.store.all_of(resource))

    def _lines_of(self, what: str) -> list[str]:
        write = _WRITE.fullmatch(what)
        if write is None:
            return [what]
        verb, kind, name, failure = write.groups()
        resource = next((item for item in words.TOLD if str(item) == kind.split("/")[0]), None)
        if failure or resource is None:
            return [what]
        return self._changes(resource) or [f"{verb} {kind} {name.strip()}: nothing changed"]

    def _changes(self, resource: Resource) -> list[str]:
        self._learn_names()
        known = self._known.get(resource, {})
        now = {obj["metadata"]["uid"]: obj for obj in self.objects(resource)}
        self._known[resource] = now
        both = [(known.get(uid), now.get(uid)) for uid in {**known, **now}]
        return [_line(resource, old, new) for old, new in both if old != new]

    def _learn_names(self) -> None:
        for claim in self.objects(CLAIMS):
            meta = claim["metadata"]
            if meta["uid"] not in self._names:
                namesakes = sum(name.startswith(f"<{meta['name']}>") for name in self._names.values())
                self._names[meta["uid"]] = f"<{meta['name']}>" + "'" * namesakes


def _instant(line: str) -> str:
    """The time of a line; answers to questions have none."""
    return "" if line.startswith(_ANSWER) else line[:10]


def _actor_and_text(line: str) -> tuple[str, str]:
    actor = line[12:23].strip()
    return ("", "") if actor == "you" or not _instant(line) else (actor, line)


def _line(resource: Resource, old: Json | None, new: Json | None) -> str:
    subject = words.title(resource, new or old or {})
    if resource == EVENTS and old is None and new is not None:
        return f"{subject}: {words.about(resource, new)}"
    return f"{subject}: {words.change(resource, old, new)}"
