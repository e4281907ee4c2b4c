"""The command `uninstall --driver NAME`: removes what the sidecars of one driver have written on nodes, volumes and claims, or created, for
drain decisions.

Run it after the driver's DaemonSet is deleted: a sidecar that still runs would write it again. What people wrote (policies, intents,
taints) stays. So do claims and volumes, which have owners of their own, but for our notes on them, and capacity objects, which the garbage
collector deletes. It goes at the client's own rate, and one that was interrupted finds what is left when it is run again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sidecar.commands import help
from sidecar.commands.forms import TABLE, Told
from sidecar.commands.line import read_for_driver
from sidecar.commands.printing import complain, show
from sidecar.commands.removing import complain_of, in_doubt_if_interrupted, patched
from sidecar.config.parse import Parsed
from sidecar.doors import Instruments, open_doors
from sidecar.drain.maintenance.step import is_of_maintenance, record_of
from sidecar.drain.node_io import nothing_of_ours, version_of
from sidecar.drain.words import first_few
from sidecar.errors import SidecarError
from sidecar.kube.api import (
    BUDGETS,
    CLAIMS,
    DEPLOYMENTS,
    DRAIN_REPORTS,
    LEASES,
    MERGE_PATCH,
    NODES,
    STRATEGIC_MERGE_PATCH,
    VOLUMES,
    KubeApi,
    Resource,
    every,
)
from sidecar.kube.errors import ApiError, NotFound, Unavailable
from sidecar.kube.which_cluster import WhichCluster
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json, claim_provisioner
from sidecar.observe.logs import setup_for_people

_ON_VOLUMES: Final = (names.LIES_ON,)
_ON_CLAIMS: Final = (names.REPROVISIONED_BY, names.LOST_WITH)


@dataclass(frozen=True, slots=True)
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
    """For marks on objects: whose they are."""


@dataclass(frozen=True, slots=True)
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
        with Told(form, cluster=cluster.as_json(), driver=driver, dryRun=config.dry_run, removed=[], unread=[], held=[]) as told:
            told.say(f"cluster: {cluster}")
            return await _remove_all(doors.kube, driver, told, dry_run=config.dry_run)
    finally:
        await doors.close()


async def _remove_all(kube: KubeApi, driver: str, told: Told, *, dry_run: bool) -> int:
    failed, found, held = 0, 0, list[str]()
    async for step in steps(kube, driver, held=held):
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
        nothing = f"There is nothing of {driver} on nodes and volumes, and no gate and no report"
        told.say(f"{nothing}; check the driver's name if you expected something.")
    for name in held:
        told.row("held", name=name)
    if held:
        told.say(
            f"{len(held)} PersistentVolumes are being deleted and keep {names.VOLUME_FINALIZER}: {first_few(held)}. A provisioner of the"
            " driver on their nodes ends that. Of nodes that are gone nobody does: if their data may be lost, run release-finalizers with"
            " --terminating."
        )
    return 1 if failed else 0


async def steps(kube: KubeApi, driver: str, *, held: list[str] | None = None) -> AsyncIterator[Step | Unread]:
    """What there is to remove. The gates come first: nothing would open them any more, and they would hold every drain. Volumes and claims
    come last, for they may be thousands. To `held` go the names of volumes whose deletion waits for our finalizer."""
    lists = [(resource, names.GUARDED_FOR) for resource in (BUDGETS, DEPLOYMENTS)]
    lists += [(LEASES, label) for label in (names.SLOT_FOR, names.REPROVISION_FOR, names.NODE_LOSS_FOR, names.FAILOVER_FOR)]
    lists += [(resource, "") for resource in (NODES, DRAIN_REPORTS, VOLUMES, CLAIMS)]
    for resource, label in lists:
        selector = f"{label}={driver}" if label else ""
        try:
            async for obj in every(kube, resource, label_selector=selector):
                if held is not None and resource == VOLUMES and _is_held(obj, driver):
                    held.append(obj["metadata"]["name"])
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
    if resource in (VOLUMES, CLAIMS):
        return _of_storage(resource, obj, driver)
    if resource == DRAIN_REPORTS and (obj.get("spec") or {}).get("driver") != driver:
        return []
    meta = obj["metadata"]
    namespace = meta.get("namespace", "")
    what = f"{resource.kind} {'/'.join(filter(None, (namespace, meta['name'])))}"
    return [Step(what, "delete", resource, meta["name"], namespace=namespace, uid=meta["uid"])]


def _is_held(volume: Mapping[str, Any], driver: str) -> bool:
    meta, csi = volume["metadata"], (volume.get("spec") or {}).get("csi") or {}
    return csi.get("driver") == driver and "deletionTimestamp" in meta and names.VOLUME_FINALIZER in (meta.get("finalizers") or ())


def _of_storage(resource: Resource, obj: Mapping[str, Any], driver: str) -> list[Step]:
    patch, meta = _without_notes(resource, obj, driver), obj["metadata"]
    if patch is None:
        return []
    what = f"{resource.kind} {'/'.join(filter(None, (meta.get('namespace', ''), meta['name'])))}"
    keys = ", ".join(sorted(patch["metadata"]["annotations"]))
    return [Step(f"{keys} of {what}", "patch", resource, meta["name"], namespace=meta.get("namespace", ""), patch=patch, driver=driver)]


def _without_notes(resource: Resource, obj: Mapping[str, Any], driver: str) -> Json | None:
    """As `_without_marks`, of a volume or a claim of this driver."""
    meta, notes = obj["metadata"], obj["metadata"].get("annotations") or {}
    csi = (obj.get("spec") or {}).get("csi") or {}
    whose, ours = (csi.get("driver"), _ON_VOLUMES) if resource == VOLUMES else (claim_provisioner(obj), _ON_CLAIMS)
    gone = {key: None for key in ours if key in notes}
    if whose != driver or not gone:
        return None
    return {"metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"], "annotations": gone}}


def _again(step: Step, obj: Mapping[str, Any]) -> Json | None:
    """What is to be removed from the object as it is by now."""
    return _without_marks(obj, step.driver) if step.resource == NODES else _without_notes(step.resource, obj, step.driver)


def _of_node(obj: Mapping[str, Any], driver: str) -> list[Step]:
    node, found = Node.of(obj), []
    if patch := _without_marks(obj, driver):
        keys, spec = sorted({**patch["metadata"].get("annotations", {}), **patch["metadata"].get("labels", {})}), patch.get("spec", {})
        gone = [", ".join(keys)] if keys else []
        gone += ["the cordon of its maintenance"] if "unschedulable" in spec else []
        gone += [f"taint {names.of_driver(driver, names.STORAGE_LOST)}"] if "taints" in spec else []
        found.append(Step(f"{' and '.join(gone)} of node {node.name}", "patch", NODES, node.name, patch=patch, driver=driver))
    ours = {names.condition(driver, kind) for kind in (names.DRAIN_READY, names.RETIRE_READY)}
    conditions = (obj.get("status") or {}).get("conditions") or ()
    types = [item["type"] for item in conditions if item.get("type") in ours or is_of_maintenance(item)]
    if types:
        off = {"status": {"conditions": [{"type": type_, "$patch": "delete"} for type_ in types]}}
        found.append(Step(f"conditions {', '.join(types)} of node {node.name}", "status", NODES, node.name, patch=off))
    return found


def _without_marks(obj: Mapping[str, Any], driver: str) -> Json | None:
    """The patch that removes them from the node in exactly this state: a later one is a Conflict, and is read again."""
    node = Node.of(obj)
    annotations, labels = nothing_of_ours(node, driver)
    before = (obj.get("spec") or {}).get("taints") or ()
    taints = [taint for taint in before if taint.get("key") != names.of_driver(driver, names.STORAGE_LOST)]
    if not annotations and not labels and len(taints) == len(before):
        return None
    meta: Json = {"uid": obj["metadata"]["uid"], "resourceVersion": version_of(obj)}
    # A cordon is ended that the record says is ours: nobody else knows of it.
    is_ours = node.unschedulable and record_of(node, driver).prior is False
    spec = ({"unschedulable": None} if is_ours else {}) | ({"taints": taints or None} if len(taints) < len(before) else {})
    marks = {key: gone for key, gone in (("annotations", annotations), ("labels", labels)) if gone}
    return {"metadata": meta | marks} | ({"spec": spec} if spec else {})


async def _take(kube: KubeApi, step: Step) -> bool:
    try:
        match step.verb:
            case "delete":
                await kube.delete(step.resource, step.name, namespace=step.namespace, uid=step.uid, propagation="Background")
            case "patch":
                again = partial(_again, step)
                await patched(kube, step.resource, step.name, step.patch, namespace=step.namespace, again=again, content_type=MERGE_PATCH)
            case _:
                await kube.patch(step.resource, step.name, step.patch or {}, content_type=STRATEGIC_MERGE_PATCH, subresource="status")
    except NotFound:
        return True
    except ApiError as error:
        complain_of(step.what, error)
        return False
    return True
