"""`explain pod NAMESPACE/NAME`: whether it would fail over if its node lost its storage, and what stands against it; during a failure also
what the sidecars that look at it have decided last. Its guards are those of the running program.
"""

import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, Final

from sidecar.commands.check import reading
from sidecar.commands.explain.claim import Sidecar, laid_out
from sidecar.commands.explain.question import Answer, Question
from sidecar.commands.text import age
from sidecar.config.config import Config
from sidecar.config.table import ACT, OFF
from sidecar.doors import Instruments, Opened, open_doors
from sidecar.drain.words import Status
from sidecar.failover.evidence import Fact, powered_off
from sidecar.failover.look_io import Candidate, Looks
from sidecar.failover.survivor import guards_of
from sidecar.failover.unit import PodVolume
from sidecar.kube.api import CLAIMS, PODS, VOLUMES, KubeApi, find, records
from sidecar.kube.errors import ApiError
from sidecar.model import names
from sidecar.model.nodes import TRUE, Pod
from sidecar.observe.sanitize import clipped

_NAMESPACE: Final = "default"
_LONGEST: Final = 400
_MOST: Final = 5  # sidecars whose decisions are shown


async def answer(config: Config, question: Question) -> Answer:
    doors = await open_doors(config, Instruments(), on_link=lambda _: None)
    try:
        rows, status = await _explained(doors, question)
    finally:
        await doors.close()
    return laid_out(rows, status, question)


async def _explained(doors: Opened, question: Question) -> tuple[dict[str, str | list[str]], Status]:
    kube, unproven = doors.kube, Fact(None, "proven at the time, or nothing is done")
    pod = Pod.of(await kube.get(PODS, question.name, namespace=question.namespace or kube.namespace or _NAMESPACE))
    driver = question.driver or await _driver_of(kube, pod)
    looks = Looks(kube, driver, clock=time.monotonic, wall=time.time)
    victim = await looks.victim(pod.node) if pod.node and driver else None
    unit = await looks.unit(Candidate(pod.namespace, pod.name, pod.uid), victim, lambda *_: unproven) if victim is not None else None
    if victim is None or unit is None:
        why = "it has no node yet" if not pod.node else f"node {pod.node} is gone" if driver else "it has no volume of a CSI driver"
        return {"pod": pod.full_name, "next": f"nothing fails over: {why}"}, Status.FALSE
    victim = replace(victim, remediated_by=victim.remediated_by or await looks.rival())
    guards = list(guards_of(unit, await looks.cluster(victim)))
    sidecars = [each async for each in _sidecars(kube, driver)]
    modes = sorted({one.flags.get("failover", OFF) for one, _ in sidecars})
    reads = any(reading.is_reader(each) for _, obj in sidecars for each in obj["spec"]["containers"])
    off = powered_off(victim.node, victim.boot_id)
    proof = "proof by DRBD, or by the label powered-off" if reads else "proof by the label powered-off alone: no container reads that"
    rows: dict[str, str | list[str]] = {
        "pod": f"{pod.full_name} on {pod.node}, which is {'Ready' if victim.node.ready == TRUE else 'not Ready'}",
        "mode": " and ".join(modes) or f"no sidecar of {driver} is seen",
        "volume": [_volume(one, proof) for one in unit.volumes] or f"none of {driver}",
        "guard": [_guard(guard.name, guard.fact.holds, guard.fact.says) for guard in guards],
    }
    rows |= {"power": off.says} if names.POWERED_OFF in victim.node.labels else {}
    rows |= {"now": said} if (said := [line async for line in _decided(doors, sidecars, pod)]) else {}
    if failing := next((guard.fact.says for guard in guards if not guard.fact.holds), ""):
        status, rows["next"] = Status.FALSE, f"it stays where it is if its node is lost: {failing}"
    elif all(volume.read_only for volume in unit.volumes):
        status, rows["next"] = Status.FALSE, "it is left alone: it has no volume of the driver that it can write to, so nothing is proven"
    elif modes != [ACT]:
        status, rows["next"] = Status.FALSE, "nothing is done for it: not all sidecars of the driver have --failover=Act"
    elif not (reads or off.holds):
        status, rows["next"] = Status.UNKNOWN, f"it fails over only once somebody has cut the power of {pod.node} and labelled it so"
    else:
        status, rows["next"] = Status.TRUE, "it fails over once its node has lost its storage, if that is proven for all its volumes"
    return rows, status


async def _driver_of(kube: KubeApi, pod: Pod) -> str:
    """Of its first volume that has one."""
    for name in pod.claims:
        claim = await find(kube, CLAIMS, name, namespace=pod.namespace) or {}
        volume = await find(kube, VOLUMES, bound) if (bound := (claim.get("spec") or {}).get("volumeName")) else None
        if driver := (((volume or {}).get("spec") or {}).get("csi") or {}).get("driver"):
            return str(driver)
    return ""


async def _sidecars(kube: KubeApi, driver: str) -> AsyncIterator[tuple[Sidecar, Mapping[str, Any]]]:
    async for obj in records(kube, PODS, lambda obj: obj if reading.works_on(obj) else None, cached=True):
        for found in reading.provisioners(obj, names.POD, drivers={driver}, image=reading.OUR_IMAGE):
            if not found.central and found.serves(driver) is not False:
                yield Sidecar(found, obj), obj


async def _decided(doors: Opened, sidecars: list[tuple[Sidecar, Mapping[str, Any]]], pod: Pod) -> AsyncIterator[str]:
    """By those that show their pages to more than their own pod."""
    for one, obj in [each for each in sidecars if each[0].debug_port and each[0].is_ready][:_MOST]:
        where, node = (one.found.namespace, one.found.name, one.debug_port, "/debug/decisions"), obj["spec"].get("nodeName")
        try:
            page = json.loads(await doors.kube.pod_page(*where, query={"key": pod.full_name}))
            for last in [each for each in page if each["room"] == "failover"][-1:]:
                fields, since = last["fields"], age(time.time() - last["time"])
                yield clipped(f"{node}, {since} ago: {fields['step']}: {last['why']}; again in {fields['again']:.0f} s", _LONGEST)
                for guard, fact in [(each["name"], each["fact"]) for each in fields["guards"]]:
                    yield _guard(guard, fact["value"] is True, f"{fact['says']} ({fact['source'] or 'itself'}, {fact['age']:.0f} s old)")
        except (ApiError, ValueError, TypeError, KeyError) as error:
            yield f"{node}: what it has decided cannot be read: {clipped(str(error), _LONGEST)}"


def _guard(name: str, holds: bool, says: str) -> str:
    return f"{'holds' if holds else 'FAILS'}  {name}: {clipped(says, _LONGEST)}"


def _volume(one: PodVolume, proof: str) -> str:
    stays = "; never detached, for several nodes may have it" if one.many else "" if one.attached else "; not attached"
    return f"{one.name} of claim {one.claim}: {'it cannot write to it' if one.read_only else proof}{stays}"
