"""`uninstall --driver NAME`: takes away all that sidecars of one driver have put on nodes, or made for them, for drain decisions.

To be run when the driver's DaemonSet is gone: a sidecar that still runs would put it back. What people wrote (policies, intents, taints)
is theirs and stays; so do claims, volumes and capacity objects, which the garbage collector or their owners look after.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sidecar.config import Parsed, parse
from sidecar.drain import gate, marks, slots
from sidecar.errors import SidecarError
from sidecar.flags import TEXT, UsageError
from sidecar.kube.api import (
    BUDGETS,
    DEPLOYMENTS,
    DRAIN_REPORTS,
    LEASES,
    MERGE_PATCH,
    NODES,
    STRATEGIC_MERGE_PATCH,
    KubeApi,
    Resource,
    every,
)
from sidecar.kube.errors import ApiError, Conflict, Forbidden, NotFound, Unauthorized, Unavailable
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json
from sidecar.own_flags import divide
from sidecar.wiring import Instruments, open_doors

USAGE: Final = "usage: csi-node-sidecar uninstall --driver DRIVER [--dry-run] [flags of run, such as --kubeconfig]"

_TRIES: Final = 3
"""A node is written to all the time, by its kubelet alone."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to take away."""

    what: str
    verb: str
    resource: Resource
    name: str
    namespace: str = ""
    uid: str = ""
    patch: Json | None = None
    driver: str = ""
    """Whose marks these are, where it is for marks on a node."""


@dataclass(frozen=True, slots=True)
class Unread:
    """What could not be listed: none of it, or not all, is taken away."""

    what: str
    error: ApiError


def run(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Returns the exit code: 0 nothing is left, 1 something could not be read or taken away, 2 the command line is wrong."""
    line = divide(words, {"driver": TEXT}, {}, USAGE)
    if line.help:
        print(USAGE)
        return 0
    driver = line.own.get("driver", "")
    parsed = parse(["--node-deployment", *line.of_run], {**environ, "NODE_NAME": "-"})
    if not driver or line.positional or not isinstance(parsed, Parsed):
        raise UsageError([USAGE])
    try:
        return asyncio.run(_uninstall(parsed, driver))
    except SidecarError as error:
        print(f"csi-node-sidecar: {error}; check --kubeconfig and your rights", file=sys.stderr)
        return 1


async def _uninstall(parsed: Parsed, driver: str) -> int:
    config, failed = parsed.config, 0
    doors = await open_doors(config, Instruments(), on_link=lambda _: None)
    try:
        async for step in steps(doors.kube, driver):
            if isinstance(step, Unread):
                _complain(step.what, step.error)
                failed += 1
                continue
            print(f"{'would take away' if config.dry_run else 'takes away'} {step.what}")
            if not config.dry_run:
                failed += not await _take(doors.kube, step)
    finally:
        await doors.close()
    return 1 if failed else 0


async def steps(kube: KubeApi, driver: str) -> AsyncIterator[Step | Unread]:
    """What there is to take away. The gate first: nobody shall be held by what nobody looks after."""
    guards, turns = gate.selector(driver), slots.selector(driver)
    lists = ((BUDGETS, guards), (DEPLOYMENTS, guards), (LEASES, guards), (LEASES, turns), (NODES, ""), (DRAIN_REPORTS, ""))
    for resource, selector in lists:
        try:
            async for obj in every(kube, resource, label_selector=selector):
                for step in _of(resource, obj, driver):
                    yield step
        except ApiError as error:
            if isinstance(error, Unavailable) and not error.status:
                raise  # there is no answer to any of them: said once
            # Without their CustomResourceDefinition there are no reports.
            if not (resource == DRAIN_REPORTS and isinstance(error, NotFound)):
                yield Unread(f"{resource} {selector}".rstrip(), error)


def _of(resource: Resource, obj: Mapping[str, Any], driver: str) -> list[Step]:
    if resource == NODES:
        return _of_node(obj, driver)
    if resource == DRAIN_REPORTS and (obj.get("spec") or {}).get("driver") != driver:
        return []
    meta = obj["metadata"]
    namespace = meta.get("namespace", "")
    what = f"{resource.kind} {'/'.join(filter(None, (namespace, meta['name'])))}"
    return [Step(what, "delete", resource, meta["name"], namespace=namespace, uid=meta["uid"])]


def _of_node(obj: Mapping[str, Any], driver: str) -> list[Step]:
    node, found = Node.of(obj), []
    if patch := _without_marks(obj, driver):
        keys = sorted({**patch["metadata"].get("annotations", {}), **patch["metadata"].get("labels", {})})
        found.append(Step(f"{', '.join(keys)} of node {node.name}", "patch", NODES, node.name, patch=patch, driver=driver))
    ours = {names.condition(driver, kind) for kind in (names.DRAIN_READY, names.RETIRE_READY)}
    types = [item["type"] for item in (obj.get("status") or {}).get("conditions") or () if item.get("type") in ours]
    if types:
        gone = {"status": {"conditions": [{"type": type_, "$patch": "delete"} for type_ in types]}}
        found.append(Step(f"conditions {', '.join(types)} of node {node.name}", "status", NODES, node.name, patch=gone))
    return found


def _without_marks(obj: Mapping[str, Any], driver: str) -> Json | None:
    """The patch for the node as it is here, and in no later state."""
    node = Node.of(obj)
    return marks.patch(node, marks.none(node, driver), resource_version=obj["metadata"]["resourceVersion"])


async def _take(kube: KubeApi, step: Step) -> bool:
    try:
        match step.verb:
            case "delete":
                await kube.delete(step.resource, step.name, namespace=step.namespace, uid=step.uid, propagation="Background")
            case "patch":
                await _unmark(kube, step)
            case _:
                await kube.patch(step.resource, step.name, step.patch or {}, content_type=STRATEGIC_MERGE_PATCH, subresource="status")
    except NotFound:
        return True
    except ApiError as error:
        _complain(step.what, error)
        return False
    return True


async def _unmark(kube: KubeApi, step: Step) -> None:
    patch, tries = step.patch, 1
    while patch is not None:
        try:
            await kube.patch(NODES, step.name, patch, content_type=MERGE_PATCH)
            return
        except Conflict:
            if tries == _TRIES:
                raise
        tries += 1
        patch = _without_marks(await kube.get(NODES, step.name), step.driver)


def _complain(what: str, error: ApiError) -> None:
    remedy = "run it again with more rights" if isinstance(error, Forbidden | Unauthorized) else "run it again"
    print(f"csi-node-sidecar: {what}: {error}; {remedy}", file=sys.stderr)
