"""A Lease that one process holds at a time, and that runs out by itself when its holder is gone: slots, workloads, the elected looker.

No other node's clock is trusted: another holder's Lease may be taken once this process has seen it unchanged for `DURATION`, whatever
it says itself. Where two nodes write at the same moment the API server lets one of them through, by the name or by the resourceVersion; the
other one is told so.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sidecar.drain.course import Answer, Held, NotKnown, TakenBy
from sidecar.kube.api import LEASES, KubeApi, find, records
from sidecar.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from sidecar.model import names, timestamps
from sidecar.model.objects import Json, Owner

log = logging.getLogger(__name__)

DURATION: Final = 900  # seconds: longer than nodes' clocks differ, and enough for a few renewals to fail; they go with their holder's Node
RENEWED_EVERY: Final = DURATION / 3


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds the Leases of this process. Another machine under the node's name is another holder."""

    node: str
    uid: str
    driver: str
    namespace: str

    @property
    def identity(self) -> str:
        return f"{self.uid}/{self.driver}"


class HeldLease:
    """One Lease of one name. `label` is a key that says of whose driver it is."""

    def __init__(
        self,
        kube: KubeApi,
        name: str,
        holder: Holder,
        *,
        label: str,
        clock: Callable[[], float],
        wall: Callable[[], float],
        record_key: str = "",
        duration: int = DURATION,
        inherits: bool = False,
    ) -> None:
        """`record_key`: the annotation that has the record; empty: there is none. `inherits`: whoever takes it goes on with its record."""
        self.name = name
        self.holder = holder
        self._kube, self._label, self._record_key = kube, label, record_key
        self._clock, self._wall, self._duration, self._inherits = clock, wall, duration, inherits
        self._stored: Json | None = None
        self._written_at: float | None = None  # when this process has written it last; None: it does not hold it, or does not know
        self._seen: tuple[str, float] | None = None  # another holder's: its version, and since when this process has seen that

    @property
    def is_held(self) -> bool:
        return self._written_at is not None

    @property
    def record(self) -> str:
        """As it was read or written last."""
        return self._record(self._stored)

    @property
    def was_anothers(self) -> bool:
        return self._seen is not None

    async def hold(self, *, record: str | None = None, now: bool = False) -> Answer:
        """Takes it if it is free, has run out, or is ours. Another `record` is written; None: that stays as it is. `now`: it is written
        whether that is due or not, and if that succeeds, this process is the holder at that moment."""
        is_fresh = self._written_at is not None and self._clock() - self._written_at < RENEWED_EVERY
        if is_fresh and not now and record in (None, self._record(self._stored)):
            return Held(self._record(self._stored))
        try:
            if self._written_at is None:
                self._stored = await find(self._kube, LEASES, self.name, namespace=self.holder.namespace)
            if self._stored is not None and (other := self._is_anothers(self._stored)):
                return other
            return await self._write(record)
        except (AlreadyExists, Conflict, NotFound):
            self._written_at = None
            return TakenBy("another node, which was faster")
        except ApiError as error:
            self._written_at = None
            return NotKnown(f"Lease {self.name}: {error}")

    async def leave(self) -> None:
        """If it is ours, anybody may take it from now on, and its record stays. Otherwise it runs out."""
        if self._written_at is None or self._stored is None:
            return
        body = self._body(self.record, self._stored["metadata"]["resourceVersion"])
        body["spec"]["holderIdentity"], self._written_at = "", None
        try:
            await self._kube.replace(LEASES, body, name=self.name, namespace=self.holder.namespace)
        except ApiError as error:
            log.info("A Lease could not be left; it runs out", extra={"fields": {"lease": self.name, "err": str(error)}})

    async def give_back(self) -> None:
        """If it is ours. Raises ApiError."""
        for attempt in range(2):
            if self._written_at is None:
                self._stored = await find(self._kube, LEASES, self.name, namespace=self.holder.namespace)
            stored, self._written_at, self._stored = self._stored, None, None
            if stored is None or holder_of(stored) != self.holder.identity:
                return
            meta = stored["metadata"]
            try:
                await self._kube.delete(
                    LEASES, self.name, namespace=self.holder.namespace, uid=meta["uid"], resource_version=meta["resourceVersion"]
                )
                return
            except NotFound:
                return
            except Conflict:
                if attempt:
                    raise  # somebody has changed it since: it is read again, and may be another holder's by now

    def _is_anothers(self, stored: Json) -> TakenBy | None:
        holder, version = holder_of(stored), stored["metadata"].get("resourceVersion", "")
        if holder in ("", self.holder.identity):
            return None
        if self._seen is None or self._seen[0] != version:
            self._seen = version, self._clock()
        return None if self._clock() - self._seen[1] >= self._duration else TakenBy(node_of(stored) or holder)

    async def _write(self, record: str | None) -> Held:
        stored, version = self._stored, ((self._stored or {}).get("metadata") or {}).get("resourceVersion", "")
        ours = stored is not None and holder_of(stored) == self.holder.identity
        said = record if record is not None else self._record(stored) if ours or self._inherits else ""
        body = self._body(said, version)
        if stored is None:
            self._stored = await self._kube.create(LEASES, body, namespace=self.holder.namespace)
        else:
            self._stored = await self._kube.replace(LEASES, body, name=self.name, namespace=self.holder.namespace)
        self._written_at, self._seen = self._clock(), None
        return Held(said)

    def _record(self, stored: Json | None) -> str:
        return record_of(stored, self._record_key) if stored is not None and self._record_key else ""

    def _body(self, record: str, version: str) -> Json:
        holder = self.holder
        meta: Json = {"name": self.name, "namespace": holder.namespace, "labels": {self._label: holder.driver}}
        meta |= {"ownerReferences": [Owner("v1", names.NODE, holder.node, holder.uid).as_json()]}
        meta |= {"resourceVersion": version} if version else {}
        meta |= {"annotations": {self._record_key: record}} if record else {}
        spec = {
            "holderIdentity": holder.identity,
            "leaseDurationSeconds": self._duration,
            "renewTime": timestamps.to_micro_text(self._wall()),
        }
        return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": meta, "spec": spec}


async def held_by(kube: KubeApi, holder: Holder, *, label: str) -> Mapping[str, Json]:
    """By name, the Leases with that label that this machine holds: what an earlier process of it has begun."""
    listed = records(kube, LEASES, lambda obj: obj, namespace=holder.namespace, label_selector=f"{label}={holder.driver}")
    return {obj["metadata"]["name"]: obj async for obj in listed if holder_of(obj) == holder.identity}


def holder_of(stored: Json) -> str:
    return str((stored.get("spec") or {}).get("holderIdentity") or "")


def node_of(stored: Json) -> str:
    """The Node in its owner reference."""
    owners = stored["metadata"].get("ownerReferences") or ()
    return next((str(ref.get("name") or "") for ref in owners if ref.get("kind") == names.NODE), "")


def record_of(stored: Json, key: str) -> str:
    return str((stored["metadata"].get("annotations") or {}).get(key) or "")
