"""Watches the cluster for the demo: prints what happens when it happens, and remembers when it did."""

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from hack.sim.demo.report import ClaimHistory
from sidecar.kube.api import CAPACITIES, CLAIMS, PODS, VOLUMES, Change, KubeApi, Resource
from sidecar.kube.reflector import Reflector
from sidecar.kube.store import Store
from sidecar.model import names
from sidecar.model.objects import Json
from sidecar.model.quantity import parse_bytes

NAMESPACE: Final = "default"
DRIVER: Final = "demo.csi-node-sidecar.io"
KEY: Final = f"topology.{DRIVER}/node"


class Progress:
    """One line for each thing that happens, with the seconds since the beginning. Needs no terminal."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = clock()

    def __call__(self, text: str) -> None:
        self.plainly(f"{self.seconds():5.1f} s  {text}")

    def heading(self, text: str) -> None:
        self.plainly(f"\n{text}")

    def plainly(self, text: str) -> None:
        # The reader of a pipe may be gone, which is no reason to stop the demo half-way.
        with suppress(BrokenPipeError):
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    def now(self) -> float:
        return self._clock()

    def seconds(self) -> float:
        return self._clock() - self._start


class Watcher:
    """What the API server says now, and each claim's history so far."""

    def __init__(self, api: KubeApi, say: Progress) -> None:
        self.histories: dict[str, ClaimHistory] = {}
        self._api = api
        self._say = say
        self._claims, self._volumes, self._pods, self._capacities = (Store[Json]() for _ in range(4))
        self._reflectors = [
            self._reflector(CLAIMS, self._claims, self._claim_changed),
            self._reflector(VOLUMES, self._volumes, self._volume_changed),
            self._reflector(PODS, self._pods, self._pod_changed),
            self._reflector(CAPACITIES, self._capacities, self._capacity_changed),
        ]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())

    async def wait_synced(self) -> None:
        for reflector in self._reflectors:
            await reflector.wait_synced()

    # --- questions ---------------------------------------------------------------------------------------------

    def claim_exists(self, name: str) -> bool:
        return f"{NAMESPACE}/{name}" in self._claims

    def is_bound(self, *claims: str) -> bool:
        return all(self.histories[name].bound is not None for name in claims)

    def volumes(self) -> list[Json]:
        return [volume for volume in self._volumes.values() if (volume["spec"].get("csi") or {}).get("driver") == DRIVER]

    def has_volume(self, claim: str) -> bool:
        return any(volume["spec"]["claimRef"]["uid"] == self.histories[claim].uid for volume in self.volumes())

    def runs(self, pod: str) -> bool:
        return self._phase(self._pods.get(f"{NAMESPACE}/{pod}")) == "Running"

    def node_of(self, pod: str) -> str:
        found = self._pods.get(f"{NAMESPACE}/{pod}")
        return str(found["spec"].get("nodeName") or "") if found else ""

    def waits_because(self, pod: str) -> str:
        """The scheduler's complaint about that pod; empty if it has none."""
        return _complaint(self._pods.get(f"{NAMESPACE}/{pod}"))

    def published(self, class_: str) -> dict[str, int]:
        """Bytes by node."""
        return {
            _node_of(item): parse_bytes(item.get("capacity", 0)) for item in self._capacities.values() if item["storageClassName"] == class_
        }

    # --- changes -------------------------------------------------------------------------------------------------

    def _claim_changed(self, change: Change[Json]) -> None:
        name = change.key.rpartition("/")[2]
        history = self.histories.get(name)
        if history is None:
            return
        if change.new is None:
            self._say(f"{name}: the claim is gone")
            return
        history.uid = change.new["metadata"]["uid"]
        self._note_owner(history, str((change.new["metadata"].get("annotations") or {}).get(names.SELECTED_NODE, "")))
        if history.bound is None and self._phase(change.new) == "Bound":
            history.bound = self._say.now()
            self._say(f"{name}: bound after {history.after(history.bound)}")

    def _note_owner(self, history: ClaimHistory, node: str) -> None:
        if node == history.node:
            return
        if not node:
            self._say(f"{history.name}: {history.node} gave it back to the scheduler")
        else:
            history.owned = self._say.now()
            self._say(f"{history.name}: {node} is its node after {history.after(history.owned)}")
        history.node = node

    def _volume_changed(self, change: Change[Json]) -> None:
        if change.new is None and change.old is not None:
            claim = (change.old["spec"].get("claimRef") or {}).get("name", "")
            self._say(f"{claim}: its volume is gone")

    def _pod_changed(self, change: Change[Json]) -> None:
        name = change.key.rpartition("/")[2]
        if change.new is None:
            self._say(f"pod {name}: gone")
            return
        if self._phase(change.new) == "Running" != self._phase(change.old):
            self._say(f"pod {name}: runs on {change.new['spec']['nodeName']}")
        complaint = _complaint(change.new)
        if complaint and complaint != _complaint(change.old):
            self._say(f"pod {name}: waits, {complaint}")

    def _capacity_changed(self, change: Change[Json]) -> None:
        if change.new is not None and (change.old is None or change.old.get("capacity") != change.new.get("capacity")):
            self._say(f"{_node_of(change.new)}: publishes {change.new.get('capacity', 0)} free")

    def _phase(self, obj: Json | None) -> str:
        return str(((obj or {}).get("status") or {}).get("phase"))

    def _reflector(self, resource: Resource, store: Store[Json], changed: Callable[[Change[Json]], None]) -> Reflector[Any]:
        namespace = NAMESPACE if resource.namespaced else ""
        return Reflector(self._api, resource, project=lambda obj: obj, store=store, on_change=changed, namespace=namespace)


def _node_of(capacity: Json) -> str:
    return str(((capacity.get("nodeTopology") or {}).get("matchLabels") or {}).get(KEY, "?"))


def _complaint(pod: Json | None) -> str:
    for condition in ((pod or {}).get("status") or {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            # The real scheduler goes on about resource claims and preemption.
            return str(condition.get("message", "")).partition(". ")[0]
    return ""
