"""Checks the driver: its socket, its capabilities, and where it says that this node is."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sidecar.commands.check.findings import Findings, NodeFacts, NoDriver, NotAsked, Provisioner, known
from sidecar.commands.check.flag_rules import config_of, report_only
from sidecar.commands.check.lines import Line, failed, not_asked, ok, warning
from sidecar.commands.check.who import drivers_of, our_sidecars
from sidecar.csi.api import CONTROLLER_SERVICE, CREATE_DELETE_VOLUME, GET_CAPACITY, TOPOLOGY, DriverInfo
from sidecar.drain.words import first_few
from sidecar.model import names

_LEAVE_IT: Final = "leave provisioning to whoever has it, with --provisioning=false"
_REGISTRAR: Final = "see that node-driver-registrar runs beside the driver, and what it logs"


def name(found: Findings) -> Iterator[Line]:
    check = "driver"
    if not found.driver:
        provisioners = known(found.provisioners) or ()
        all_say = all(one.mentions for one in provisioners if one.ours)
        there = ", ".join((all_say and drivers_of(provisioners)) or sorted(known(found.drivers) or ()))
        yield failed(check, "it is not known which driver is meant", f"name it with --driver{f', one of {there}' if there else ''}")
    elif isinstance(found.socket, DriverInfo):
        info = found.socket
        if info.name != found.driver:
            yield failed(check, f"the driver at the socket is {info.name}, not {found.driver}", "correct --csi-address or --driver")
        else:
            yield ok(check, f"{info.name} {info.version}".rstrip())
    else:
        yield ok(check, f"{found.driver}, which itself was not asked")


def _remedy_without(why: str) -> str:
    if "Permission denied" in why:
        return "run this container as a user that may reach the socket, mostly root; under SELinux also with the type spc_t"
    return "set --csi-address to the socket that the driver serves"


def socket(found: Findings) -> Iterator[Line]:
    """On the node by a connection; from outside by what the pod mounts."""
    check = "socket"
    match found.socket:
        case NoDriver(why):
            yield failed(check, f"no driver answers: {why.rstrip('.')}", _remedy_without(why))
        case DriverInfo():
            yield ok(check, "a driver answers")
        case NotAsked():
            for one in our_sidecars(found):
                yield _mounted(check, one)


def _mounted(check: str, one: Provisioner) -> Line:
    others = {neighbour.socket: neighbour.container for neighbour in one.neighbours if neighbour.socket}
    if not one.socket:
        return failed(check, f"--csi-address of {one.full_name} is in no folder that it mounts", "mount the folder of the driver's socket")
    if others and one.socket not in others:
        other, container = next(iter(others.items()))
        remedy = f"give both containers the same socket: {other} is that of container {container}"
        return failed(check, f"--csi-address of {one.full_name} leads to {one.socket} on the node, and there is no driver", remedy)
    if one.read_only:
        text = f"the folder of the socket is mounted read-only in {one.full_name}: there is no journal of creations under way"
        return warning(check, text, "mount it writable, or name a folder with --journal-dir")
    agree = f", as for container {others[one.socket]}" if others else ""
    return ok(check, f"{one.socket} on the node, for {one.full_name}{agree}")


def capabilities(found: Findings) -> Iterator[Line]:
    check, info, config = "capabilities", found.socket, config_of(found)
    if not isinstance(info, DriverInfo):
        return
    lacking = [one for one, said in ((CONTROLLER_SERVICE, info.plugin), (CREATE_DELETE_VOLUME, info.controller)) if one not in said]
    if lacking and not report_only(config):
        yield failed(check, f"the driver has no {' and no '.join(lacking)}: no volume is made or deleted here", _LEAVE_IT)
    if not lacking and config is not None and config.enable_capacity and GET_CAPACITY not in info.controller:
        yield failed(check, f"the driver has no {GET_CAPACITY}, so --enable-capacity publishes nothing", "take that flag out")
    if TOPOLOGY not in info.plugin:
        text = f"the driver has no {TOPOLOGY}: its volumes get no node affinity, so pods may be put where their volume is not"
        yield warning(check, text, "the driver has to announce it, and a topology in NodeGetInfo")
    if not lacking:
        yield ok(check, ", ".join(sorted(info.plugin | info.controller)))


# --- topology ---------------------------------------------------------------------------------------------------------


def topology(found: Findings) -> Iterator[Line]:
    check, nodes = "topology", found.nodes
    if not found.driver:
        return
    if isinstance(nodes, NotAsked):
        yield not_asked(check, nodes)
        return
    wrong = [*_registered(check, found, nodes), *_labels(check, nodes), *_as_driver_says(check, found, nodes), *_shared(check, nodes)]
    yield from wrong
    if not wrong:
        whose = f"node {nodes[0].name}" if len(nodes) == 1 else f"{len(nodes)} nodes"
        keys = sorted({key for node in nodes for key in node.keys})
        yield ok(check, f"{whose} registered, with {', '.join(keys) or 'no key'}")


def _registered(check: str, found: Findings, nodes: Sequence[NodeFacts]) -> Iterator[Line]:
    without = [node.name for node in nodes if not node.registered]
    if without:
        text = f"{names.CSI_NODE} has no entry of {found.driver} on {_these(without)}: no pod there can use its volumes"
        yield failed(check, text, _REGISTRAR)
    if not nodes:
        yield failed(check, f"no node has registered {found.driver}", _REGISTRAR)


def _labels(check: str, nodes: Sequence[NodeFacts]) -> Iterator[Line]:
    bare = [node.name for node in nodes if node.registered and not node.keys]
    if bare:
        text = f"{names.CSI_NODE} names no topology key on {_these(bare)}: volumes are taken to be reachable from everywhere"
        yield warning(check, text, "the driver has to report accessible_topology in NodeGetInfo")
    gone = [node.name for node in nodes if node.registered and node.labels is None]
    if gone:
        yield warning(check, f"there is no Node of {_these(gone)}", "see what removed it")
    for key in sorted({key for node in nodes for key in node.keys}):
        without = [node.name for node in nodes if key in node.keys and node.labels is not None and key not in node.labels]
        if without:
            text = (
                f"{names.CSI_NODE} names the topology key {key}, and the Node has no such label on {_these(without)}: pods find no volume"
            )
            yield failed(check, text, "restart the registrar, upon which the kubelet sets the label")


def _as_driver_says(check: str, found: Findings, nodes: Sequence[NodeFacts]) -> Iterator[Line]:
    """On the node the driver itself has said where it is."""
    info = found.socket
    if not isinstance(info, DriverInfo) or TOPOLOGY not in info.plugin:
        return
    for node in nodes:
        said = info.segment.labels()
        if not node.registered:
            continue
        if set(said) != set(node.keys):
            text = f"the driver says {', '.join(sorted(said)) or 'no topology key'}, and {names.CSI_NODE} of {node.name}"
            yield failed(
                check,
                f"{text} {', '.join(sorted(node.keys)) or 'none'}: volumes get an affinity that no node has",
                f"re-register: {_REGISTRAR}",
            )
        elif other := _differs(said, node.labels):
            text = f"the driver says {other}={said[other]}, and Node {node.name} is labelled {(node.labels or {})[other]}"
            yield failed(check, f"{text}: pods are put where the volume is not", "correct the label, or what the driver reports")


def _differs(said: Mapping[str, str], labels: Mapping[str, str] | None) -> str:
    return next((key for key, value in sorted(said.items()) if labels is not None and key in labels and labels[key] != value), "")


def _shared(check: str, nodes: Sequence[NodeFacts]) -> Iterator[Line]:
    """Several nodes with one and the same place."""
    places: defaultdict[tuple[tuple[str, str], ...], list[str]] = defaultdict(list)
    for node in nodes:
        if node.keys and node.labels is not None and set(node.keys) <= set(node.labels):
            places[tuple((key, node.labels[key]) for key in sorted(node.keys))].append(node.name)
    for place, here in places.items():
        if len(here) > 1:
            said = ",".join(f"{key}={value}" for key, value in place)
            text = f"{_these(here)} have one topology, {said}: a volume of one is taken to be reachable from all"
            yield warning(check, text, "a node-local driver needs a value for each node")


def _these(nodes: Sequence[str]) -> str:
    return f"{'node' if len(nodes) == 1 else f'{len(nodes)} nodes:'} {first_few(sorted(nodes), 3)}"
