"""The command `release-finalizers --driver NAME`: takes our finalizer off the driver's PersistentVolumes; without --yes it only shows them.

It is for the way back to a provisioner whose role cannot take the finalizer off, after our DaemonSet is gone: a sidecar that runs would put
it on again. Volumes that are being deleted keep it: without it they would go at once, and their data would stay with nothing that names it.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sidecar.commands import help
from sidecar.commands.check.asking_io import running_sidecars
from sidecar.commands.check.reading import OUR_IMAGE
from sidecar.commands.forms import Told
from sidecar.commands.line import read_for_driver
from sidecar.commands.printing import complain, show
from sidecar.commands.removing import complain_of, in_doubt_if_interrupted, patched
from sidecar.config.config import Config
from sidecar.doors import Instruments, open_doors
from sidecar.drain.words import first_few
from sidecar.errors import SidecarError
from sidecar.kube.api import STRATEGIC_MERGE_PATCH, VOLUMES, KubeApi, every
from sidecar.kube.errors import ApiError, NotFound
from sidecar.kube.which_cluster import WhichCluster
from sidecar.model import names
from sidecar.model.objects import Json
from sidecar.observe.logs import setup_for_people

_STAYS: Final = "is being deleted, and keeps it: without it the PersistentVolume goes at once and the data stays on its node"


@dataclass(frozen=True, slots=True)
class Order:
    driver: str
    acts: bool
    """Else it only shows what it would do."""
    force: bool
    """Also while one of ours runs."""
    terminating: bool
    """Also volumes that are being deleted."""
    image: str = OUR_IMAGE


def run(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Returns the exit code: 0 done or shown, 1 one still has it, or it was refused, 2 the line cannot be read."""
    line = read_for_driver(words, environ, "release-finalizers")
    if line is None:
        show(help.text(["release-finalizers"]), end="")
        return 0
    own, parsed = line
    acts = own.yes and not parsed.config.dry_run
    order = Order(own.driver, acts=acts, force=own.force, terminating=own.terminating, image=own.image or OUR_IMAGE)
    setup_for_people(parsed.config.verbosity, logging.ERROR)
    try:
        return asyncio.run(_release(parsed.config, order, form=own.output))
    except SidecarError as error:
        complain(f"{error}; check --kubeconfig and your rights")
        return 1


async def _release(config: Config, order: Order, *, form: str) -> int:
    opened = await open_doors(config, Instruments(), on_link=lambda _: None)
    try:
        cluster = WhichCluster.of(opened.kube.reached)
        with Told(form, cluster=cluster.as_json(), driver=order.driver, dryRun=not order.acts, volumes=[], running=[]) as told:
            told.say(f"cluster: {cluster}")
            return await release(opened.kube, order, told)
    finally:
        await opened.close()


async def release(kube: KubeApi, order: Order, told: Told) -> int:
    """Raises ApiError if the volumes cannot be listed."""
    if (why := await _still_runs(kube, order, told)) and not order.force:
        if order.acts:
            complain(f"{why}; nothing was changed. Stop it first, or say --force")
            return 1
        told.say(f"This would be refused, unless with --force: {why}.")
    found, left = 0, 0
    async for obj in every(kube, VOLUMES):
        if not _has_it(obj, order.driver):
            continue
        found += 1
        left += not await _one(kube, obj, order, told)
    if not found:
        told.say(f"No PersistentVolume of {order.driver} has {names.VOLUME_FINALIZER}; is that the driver's name?")
    elif not order.acts:
        told.say(f"{found} PersistentVolumes of {order.driver} have the finalizer; nothing was changed: say --yes to take it off.")
    else:
        told.say(f"The finalizer is off {found - left} of {found} PersistentVolumes. A provisioner that knows it puts it on again.")
    return 1 if order.acts and left else 0


async def _still_runs(kube: KubeApi, order: Order, told: Told) -> str:
    """Why the finalizers would come back; empty: there is nobody to put them on."""
    try:
        running = await running_sidecars(kube, order.driver, image=order.image)
    except ApiError as error:
        return f"whether a sidecar of {order.driver} still runs could not be asked: {error}"
    for workload in running:
        told.row("running", workload=workload)
    if not running:
        return ""
    return f"a sidecar of ours runs that serves {order.driver}, or may, and puts the finalizer on again: {first_few(running)}"


async def _one(kube: KubeApi, obj: Mapping[str, Any], order: Order, told: Told) -> bool:
    """Whether it is off, or would be."""
    name = obj["metadata"]["name"]
    what = f"{VOLUMES.kind} {name}"
    if _stays(obj, order):
        told.say(f"{what} {_STAYS}")
        told.row("volumes", name=name, result="kept", why=_STAYS)
        return False
    if not order.acts:
        told.say(f"would take the finalizer off {what}")
        told.row("volumes", name=name, result="would be released")
        return True
    with in_doubt_if_interrupted(what, lambda result: told.row("volumes", name=name, result=result)):
        result = await _taken_off(kube, obj, order)
    if result == "released":
        told.say(f"took the finalizer off {what}")
    elif result == "kept":
        told.say(f"{what} {_STAYS}")
    told.row("volumes", name=name, result=result)
    return result == "released"


async def _taken_off(kube: KubeApi, obj: Mapping[str, Any], order: Order) -> str:
    """The volume may change meanwhile: then it is looked at again. One that is gone has no finalizer."""
    name, uid = obj["metadata"]["name"], obj["metadata"]["uid"]
    stays = False

    def again(later: Mapping[str, Any]) -> Json | None:
        nonlocal stays
        if later["metadata"]["uid"] != uid or not _has_it(later, order.driver):
            return None
        stays = _stays(later, order)
        return None if stays else _patch(later)

    try:
        await patched(kube, VOLUMES, name, _patch(obj), again=again, content_type=STRATEGIC_MERGE_PATCH)
    except NotFound:
        return "released"
    except ApiError as error:
        complain_of(f"{VOLUMES.kind} {name}", error)
        return "failed"
    return "kept" if stays else "released"


def _patch(obj: Mapping[str, Any]) -> Json:
    """For the volume in exactly this state, so that none is released that somebody has begun to delete. Other finalizers stay."""
    meta = {key: obj["metadata"][key] for key in ("uid", "resourceVersion")}
    return {"metadata": {**meta, "$deleteFromPrimitiveList/finalizers": [names.VOLUME_FINALIZER]}}


def _has_it(obj: Mapping[str, Any], driver: str) -> bool:
    csi = (obj.get("spec") or {}).get("csi") or {}
    return csi.get("driver") == driver and names.VOLUME_FINALIZER in (obj["metadata"].get("finalizers") or ())


def _stays(obj: Mapping[str, Any], order: Order) -> bool:
    return "deletionTimestamp" in obj["metadata"] and not order.terminating
