"""All that `check` asks: the process that runs beside it, the driver's socket, the API server. What cannot be asked is told as that."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import sidecar
from sidecar.commands.check import reading
from sidecar.commands.check.findings import (
    ClaimPolicy,
    DriverObject,
    Election,
    Findings,
    Flags,
    NodeFacts,
    NoDriver,
    NotAsked,
    Provisioner,
    Server,
    known,
)
from sidecar.commands.check.who import chosen, meant_driver
from sidecar.csi.api import DriverInfo
from sidecar.doors import Opened
from sidecar.errors import Fatal
from sidecar.kube.api import (
    CAPACITIES,
    CLASSES,
    CSI_DRIVERS,
    CSI_NODES,
    DAEMON_SETS,
    DEPLOYMENTS,
    LEASES,
    NODES,
    PODS,
    STATEFUL_SETS,
    KubeApi,
    Resource,
    every,
    find,
    records,
)
from sidecar.kube.errors import ApiError, Forbidden, NotFound
from sidecar.model import names
from sidecar.model.objects import Class
from sidecar.rights.asking_io import ask
from sidecar.rights.rights import Account, Rights
from sidecar.rights.table import TABLE

T = TypeVar("T")
_PATIENCE: Final = 5.0
"""Seconds for the driver, which answers at once if it is there."""
_AT_ONCE: Final = 0.3
"""Seconds where there is no socket: enough to learn why."""
_WORKLOADS: Final = ((DAEMON_SETS, names.DAEMON_SET), (DEPLOYMENTS, names.DEPLOYMENT), (STATEFUL_SETS, names.STATEFUL_SET))
_PROGRAMS: Final = ("csi-node-sidecar", "csi-provisioner")
_POLICY_VERSIONS: Final = ("v1", "v1beta1")


@dataclass(frozen=True, slots=True)
class Place:
    """Who is asked about, and from where."""

    driver: str
    on_node: bool
    node: str
    namespace: str
    pod: str
    image: str
    only_in: str
    """The namespace of our sidecars; empty: any."""
    flags: Flags | NotAsked


def flags_of_process(processes: Path = Path("/proc")) -> Flags | NotAsked:
    """Of the program that runs beside this command, in its container."""
    found = {words for file in sorted(processes.glob("[0-9]*/cmdline")) if (words := _words(file)) is not None}
    if len(found) != 1:
        why = "no sidecar runs in this container" if not found else "several sidecars can be seen from here"
        return NotAsked(f"{why}; give the flags behind `check`, as they stand in the manifest")
    return Flags("the running process", next(iter(found)), dict(os.environ))


def _words(file: Path) -> tuple[str, ...] | None:
    """None: another program, or one that is gone."""
    try:
        words = [word.decode(errors="replace") for word in file.read_bytes().rstrip(b"\0").split(b"\0")]
    except OSError:
        return None
    at = next((place for place, word in enumerate(words[:3]) if os.path.basename(word) in _PROGRAMS), None)  # noqa: PTH119 - no path, a word
    rest = () if at is None else words[at + 1 :]
    rest = rest[1:] if rest[:1] == ["run"] else rest
    return tuple(rest) if any(word.startswith("--node-deployment") for word in rest) else None


async def look(opened: Opened, place: Place) -> Findings:
    server = await _answer(_server(opened))
    if isinstance(server, NotAsked):
        return _unreachable(place, server, await _driver(opened) if place.on_node else NotAsked("from outside"))
    kube = opened.kube
    async with asyncio.TaskGroup() as group:
        socket_task = group.create_task(_driver(opened)) if place.on_node else None
        drivers_task = group.create_task(_answer(_drivers(kube)))
        classes_task = group.create_task(_answer(_collected(records(kube, CLASSES, Class.of))))
        policy_task = group.create_task(_answer(_policy(kube)))
    socket = socket_task.result() if socket_task else NotAsked("from outside")
    drivers, classes = drivers_task.result(), classes_task.result()
    names_of_drivers = {*(known(drivers) or ()), *([place.driver] if place.driver else ())}
    if place.on_node and not place.node and isinstance(socket, DriverInfo):
        place = replace(place, node=socket.node_id)
    look_for = _pod_and_neighbours if place.on_node else _workloads
    provisioners = await _answer(look_for(kube, place, names_of_drivers))
    driver = place.driver or (socket.name if isinstance(socket, DriverInfo) else meant_driver(known(provisioners) or ()))
    ours = chosen(known(provisioners) or (), driver)
    if driver and place.on_node and isinstance(drivers, NotAsked):
        drivers = await _answer(_one_driver(kube, driver))
    namespace = place.namespace if place.on_node else (ours[0].namespace if ours else "")
    asker, rights = await _rights(kube, place, ours, namespace)
    async with asyncio.TaskGroup() as group:
        nodes_task = group.create_task(_answer(_nodes(kube, driver, place, ours)))
        elections_task = group.create_task(_answer(_elections(kube, driver, namespace if place.on_node else "")))
        published_task = group.create_task(_answer(_published(kube, driver, namespace)))
    return Findings(
        on_node=place.on_node,
        driver=driver,
        node=place.node,
        program=sidecar.__version__,
        flags=_flags(place, ours, provisioners),
        server=server,
        policy=policy_task.result(),
        socket=socket,
        drivers=drivers,
        nodes=nodes_task.result(),
        classes=classes,
        rights=rights,
        asker=asker,
        provisioners=provisioners,
        elections=elections_task.result(),
        published=published_task.result(),
    )


def _unreachable(place: Place, server: NotAsked, socket: DriverInfo | NoDriver | NotAsked) -> Findings:
    nothing = NotAsked("the API server does not answer")
    driver = place.driver or (socket.name if isinstance(socket, DriverInfo) else "")
    return Findings(
        place.on_node, driver, place.node, sidecar.__version__, place.flags, server, nothing, socket, nothing, nothing, nothing, nothing,
        "", nothing, nothing, nothing,
    )  # fmt: skip


async def _answer(asked: Awaitable[T | NotAsked]) -> T | NotAsked:
    try:
        return await asked
    except ApiError as error:
        return NotAsked(str(error))


async def _collected(found: AsyncIterator[T]) -> tuple[T, ...]:
    return tuple([one async for one in found])


# --- the driver -------------------------------------------------------------------------------------------------------


async def _driver(opened: Opened) -> DriverInfo | NoDriver:
    """What it says of itself; or why it does not, after a few seconds."""
    moving = asyncio.create_task(opened.connection.run())
    there = os.path.exists(opened.config.csi_address)  # noqa: ASYNC240, PTH110 - one look at a local path
    try:
        return await asyncio.wait_for(opened.connection.first_ready(), _PATIENCE if there else _AT_ONCE)
    except TimeoutError:
        return NoDriver(opened.connection.state.why)
    except Fatal as error:
        return NoDriver(str(error))
    finally:
        moving.cancel()
        await asyncio.gather(moving, return_exceptions=True)


# --- the API server ---------------------------------------------------------------------------------------------------


async def _server(opened: Opened) -> Server:
    began = time.time()
    version, date = await opened.kube.version_and_date()
    ended = time.time()
    said = reading.seconds_of_date(date)
    # The header has whole seconds, cut off. When in between the server has looked at its clock is not known.
    ahead = None if said is None else (began + ended) / 2 - (said + 0.5)
    return Server(version, ahead, (ended - began) / 2 + 0.5)


async def _policy(kube: KubeApi) -> ClaimPolicy:
    served, there, bound = [], False, False
    for version in _POLICY_VERSIONS:
        policies = Resource(names.ADMISSION_GROUP, version, "mutatingadmissionpolicies", names.MUTATING_POLICY, False)
        bindings = replace(policies, plural="mutatingadmissionpolicybindings", kind=names.MUTATING_POLICY_BINDING)
        try:
            await kube.resource_for(policies.api_version, policies.kind)
        except NotFound:
            continue
        served.append(version)
        there = there or await find(kube, policies, names.CLAIM_POLICY) is not None
        bound = bound or await find(kube, bindings, names.CLAIM_POLICY) is not None
    return ClaimPolicy(tuple(served), there, bound)


async def _drivers(kube: KubeApi) -> dict[str, DriverObject]:
    return {obj["metadata"]["name"]: reading.driver_object(obj) async for obj in every(kube, CSI_DRIVERS)}


async def _one_driver(kube: KubeApi, driver: str) -> dict[str, DriverObject]:
    """For an account that may not list them. A role for provisioning seldom has either right."""
    obj = await find(kube, CSI_DRIVERS, driver)
    return {} if obj is None else {driver: reading.driver_object(obj)}


async def _nodes(kube: KubeApi, driver: str, place: Place, ours: Sequence[Provisioner]) -> tuple[NodeFacts, ...] | NotAsked:
    """The one that this is about; from outside all that have the driver, and those where our pods are."""
    if not driver:
        return ()
    if place.on_node and not place.node:
        return NotAsked("NODE_NAME is not set")
    if place.on_node:
        node = await find(kube, NODES, place.node)
        return (reading.node_facts(place.node, await find(kube, CSI_NODES, place.node), node, driver),)
    wanted = {node for one in ours for node in one.nodes}
    entries = {
        obj["metadata"]["name"]: obj
        async for obj in every(kube, CSI_NODES)
        if obj["metadata"]["name"] in wanted or any(one.get("name") == driver for one in (obj.get("spec") or {}).get("drivers") or ())
    }
    wanted |= entries.keys()
    labelled = {obj["metadata"]["name"]: obj async for obj in every(kube, NODES) if obj["metadata"]["name"] in wanted}
    return tuple(reading.node_facts(name, entries.get(name), labelled.get(name), driver) for name in sorted(wanted))


async def _published(kube: KubeApi, driver: str, namespace: str) -> int:
    if not driver:
        return 0
    selector = f"{names.CAPACITY_DRIVER_LABEL}={driver}"
    return len(await _collected(records(kube, CAPACITIES, lambda obj: True, namespace=namespace, label_selector=selector)))


async def _elections(kube: KubeApi, driver: str, namespace: str) -> tuple[Election, ...]:
    """In all namespaces; on the node in that of its own pod, which is as far as a role goes there."""
    if not driver:
        return ()
    now = time.time()
    selector = f"metadata.name={reading.election_name(driver)}"
    found = every(kube, LEASES, namespace=namespace, field_selector=selector)
    return tuple([reading.election(obj, now=now) async for obj in found])


# --- rights -----------------------------------------------------------------------------------------------------------


async def _rights(kube: KubeApi, place: Place, ours: Sequence[Provisioner], namespace: str) -> tuple[str, Rights | NotAsked]:
    """Whose they are, and what they are. Our own on a node; from outside those of the account that the pods run under."""
    rights = [row.right for row in TABLE]
    if place.on_node:
        return "this account", await _answer(ask(kube, rights, namespace=namespace))
    accounts = {Account(one.namespace, one.account) for one in ours}
    if len(accounts) != 1:
        return "", NotAsked("no service account is known" if not accounts else "our containers run under several service accounts")
    account = accounts.pop()
    try:
        return f"service account {account.namespace}/{account.name}", await ask(kube, rights, namespace=namespace, account=account)
    except Forbidden as error:
        return "", NotAsked(
            f"{error}: you may not ask for {account.namespace}/{account.name}; run check in its pod, where it asks for itself"
        )
    except ApiError as error:
        return "", NotAsked(str(error))


# --- who provisions ---------------------------------------------------------------------------------------------------


def _flags(place: Place, ours: Sequence[Provisioner], every_one: Sequence[Provisioner] | NotAsked) -> Flags | NotAsked:
    """Those that somebody has given come first."""
    if not isinstance(place.flags, NotAsked) or place.on_node:
        return place.flags
    if isinstance(every_one, NotAsked):
        return NotAsked(
            f"which containers there are is not known ({every_one.why}); give the flags behind `check`, as they stand in the manifest"
        )
    if not ours:
        several = any(one.ours for one in every_one)
        return NotAsked("which container is meant is not known" if several else "no container of our image was found")
    return Flags(ours[0].full_name, ours[0].words, ours[0].environ)


async def _workloads(kube: KubeApi, place: Place, drivers: set[str]) -> tuple[Provisioner, ...] | NotAsked:
    found: list[Provisioner] = []
    async for obj, kind in _every_workload(kube):
        these = [
            one for one in reading.provisioners(obj, kind, drivers=drivers, image=place.image) if not one.ours or _is_meant(one, place)
        ]
        if these and kind == names.DAEMON_SET:
            nodes = await _nodes_of(kube, obj)
            these = [replace(one, nodes=nodes) for one in these]
        found += these
    return tuple(found)


def _is_meant(one: Provisioner, place: Place) -> bool:
    return one.namespace == (place.only_in or one.namespace)


async def _every_workload(kube: KubeApi) -> AsyncIterator[tuple[dict[str, Any], str]]:
    for resource, kind in _WORKLOADS:
        async for obj in every(kube, resource):
            yield obj, kind


async def running_sidecars(kube: KubeApi, driver: str, *, image: str) -> list[str]:
    """Workloads and pods of ours that serve the driver, or may: whatever does not say which one it serves counts. Raises ApiError."""
    drivers = {driver, *(known(await _answer(_drivers(kube))) or ())}
    found: set[str] = set()

    def note(obj: dict[str, Any], kind: str) -> None:
        these = reading.provisioners(obj, kind, drivers=drivers, image=image)
        found.update(one.workload for one in these if one.ours and one.serves(driver) is not False)

    async for obj, kind in _every_workload(kube):
        note(obj, kind)
    async for pod in every(kube, PODS):
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            note(pod, names.POD)
    return sorted(found)


async def _nodes_of(kube: KubeApi, workload: dict[str, Any]) -> tuple[str, ...]:
    scope = {"namespace": workload["metadata"]["namespace"], "label_selector": reading.selector_of(workload)}
    return tuple(sorted([node async for node in records(kube, PODS, lambda pod: reading.works_on(pod) or None, **scope)]))


async def _pod_and_neighbours(kube: KubeApi, place: Place, drivers: set[str]) -> tuple[Provisioner, ...] | NotAsked:
    """In the pods of this node, where the role allows to list them; else in our own pod alone."""
    pods, why = [], "NODE_NAME is not set"
    if place.node:
        try:
            pods = [obj async for obj in every(kube, PODS, field_selector=f"spec.nodeName={place.node}") if reading.works_on(obj)]
        except Forbidden as error:
            why = str(error)
    if not pods and not place.pod:
        return NotAsked(f"{why}; and POD_NAME is not set, so our own pod is not known either")
    if not pods:
        pods = [await kube.get(PODS, place.pod, namespace=place.namespace)]
    return tuple(
        replace(one, nodes=(place.node,) if place.node else ())
        for pod in pods
        for one in reading.provisioners(pod, names.POD, drivers=drivers, image=place.image)
    )
