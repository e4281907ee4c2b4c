"""The command `uninstall --driver NAME`: removes what the sidecars of one driver have written on nodes, or created, for drain decisions.

Run it after the driver's DaemonSet is deleted: a sidecar that still runs would write it again. What people wrote (policies, intents,
taints) stays. So do claims and volumes, which have owners of their own, and capacity objects, which the garbage collector deletes.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from sidecar.commands import help
from sidecar.commands.forms import TABLE, Told
from sidecar.commands.line import read_for_driver
from sidecar.commands.printing import complain, show
from sidecar.commands.removing import complain_of, in_doubt_if_interrupted, patched
from sidecar.config.parse import Parsed
from sidecar.doors import Instruments, open_doors
from sidecar.drain.evacuation import slots
from sidecar.drain.gate import rules
from sidecar.drain.node_loss import turn
from sidecar.drain.publish import on_node
from sidecar.errors import SidecarError
from sidecar.frozen import frozen
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
from sidecar.kube.errors import ApiError, NotFound, Unavailable
from sidecar.kube.which_cluster import WhichCluster
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json
from sidecar.observe.logs import setup_for_people


@frozen
class Step:
    """One thing to remove."""

    what: str
    verb: str
    resource: Resource
    name: str
    namespace: str = ""
    uid: str = ""
    patch: Json | None = None
    driver: str = ""
    """For marks on a node: whose they are."""


@frozen
class Unread:
    """A kind of object that could not be listed whole, so some of it may stay."""

    what: str
    error: ApiError


def run(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Returns the exit code: 0 nothing is left, 1 something could not be listed or removed, 2 the command line cannot be read."""
    line = read_for_driver(words, environ, "uninstall")
    if line is None:
        show(help.text(["uninstall"]), end="")
        return 0
    own, parsed = line
    setup_for_people(parsed.config.verbosity, logging.ERROR)  # what is left to do is said here
    try:
        return asyncio.run(_uninstall(parsed, own.driver, form=own.output))
    except SidecarError as error:
        complain(f"{error}; check --kubeconfig and your rights")
        return 1


async def _uninstall(parsed: Parsed, driver: str, *, form: str = TABLE) -> int:
    config = parsed.config
    doors = await open_doors(config, Instruments(), on_link=lambda _: None)
    try:
        cluster = WhichCluster.of(doors.kube.reached)
        with Told(form, cluster=cluster.as_json(), driver=driver, dryRun=config.dry_run, removed=[], unread=[]) as told:
            told.say(f"cluster: {cluster}")
            return await _remove_all(doors.kube, driver, told, dry_run=config.dry_run)
    finally:
        await doors.close()


async def _remove_all(kube: KubeApi, driver: str, told: Told, *, dry_run: bool) -> int:
    failed, found = 0, 0
    async for step in steps(kube, driver):
        if isinstance(step, Unread):
            complain_of(step.what, step.error)
            told.row("unread", what=step.what, error=str(step.error))
            failed += 1
            continue
        found += 1
        told.say(f"{'would remove' if dry_run else 'removes'} {step.what}")

        def row(result: str, step: Step = step) -> None:
            told.row("removed", what=step.what, kind=step.resource.kind, namespace=step.namespace, name=step.name, result=result)

        with in_doubt_if_interrupted(step.what, row):
            gone = dry_run or await _take(kube, step)
        failed += not gone
        row("would be removed" if dry_run else "removed" if gone else "failed")
    if found:
        told.say(f"A sidecar of {driver} that still runs with --drain-report writes this again: stop it, and run this command again.")
    elif not failed:
        told.say(f"There is nothing of {driver} on nodes, and no gate and no report; check the driver's name if you expected something.")
    return 1 if failed else 0


async def steps(kube: KubeApi, driver: str) -> AsyncIterator[Step | Unread]:
    """What there is to remove. The gates come first: nothing would open them any more, and they would hold every drain."""
    gates, turns = rules.selector(driver), slots.selector(driver)
    lists = (
        (BUDGETS, gates),
        (DEPLOYMENTS, gates),
        (LEASES, gates),
        (LEASES, turns),
        (LEASES, turn.selector(driver)),
        (NODES, ""),
        (DRAIN_REPORTS, ""),
    )
    for resource, selector in lists:
        try:
            async for obj in every(kube, resource, label_selector=selector):
                for step in _of(resource, obj, driver):
                    yield step
        except ApiError as error:
            if isinstance(error, Unavailable) and not error.status:
                raise  # the API server does not answer at all, which is said once
            # Without its CustomResourceDefinition there are no reports, and nothing is missing.
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
    """The patch that removes them from the node in exactly this state: a later one is a Conflict, and is read again."""
    node = Node.of(obj)
    return on_node.patch(node, on_node.none(node, driver), resource_version=obj["metadata"]["resourceVersion"])


async def _take(kube: KubeApi, step: Step) -> bool:
    try:
        match step.verb:
            case "delete":
                await kube.delete(step.resource, step.name, namespace=step.namespace, uid=step.uid, propagation="Background")
            case "patch":
                await patched(
                    kube, NODES, step.name, step.patch, again=lambda obj: _without_marks(obj, step.driver), content_type=MERGE_PATCH
                )
            case _:
                await kube.patch(step.resource, step.name, step.patch or {}, content_type=STRATEGIC_MERGE_PATCH, subresource="status")
    except NotFound:
        return True
    except ApiError as error:
        complain_of(step.what, error)
        return False
    return True
