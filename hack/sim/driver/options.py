"""The command line of the served driver, as a value."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from hack.sim.driver.faults import BadFault, Fault, fault_of, parse_fault
from hack.sim.driver.spec import DEFAULT_NAME, DEFAULT_POOLS, FEATURES, MIB, Spec
from sidecar.csi.outcome import Code
from sidecar.frozen import frozen
from sidecar.model.quantity import BadQuantity, parse_bytes

Add = Callable[..., Any]

_JOURNAL: Final = ".journal"


@frozen
class Registration:
    """The folder in which the kubelet looks for plugins, as this process sees it, and the driver's own socket, as the kubelet sees it."""

    folder: Path
    endpoint: str


@frozen(kw_only=True)
class Options:
    """What to serve, where, and what shall go wrong."""

    endpoint: str
    spec: Spec
    state: Path | None
    volumes: Path | None
    registration: Registration | None
    calls: Path | None
    faults_file: Path | None
    faults: tuple[Fault, ...]
    ready_after: float
    fsync: bool
    node_only: bool


def read_options(arguments: Sequence[str]) -> Options:
    """Ends the process with exit code 2 and a reason if the arguments make no sense."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        spec, registration = _spec(given), _registration(given)
    except ValueError as error:
        parser.error(str(error))
    probe_error = () if given.probe_error is None else (fault_of({"method": "Probe", "fail": given.probe_error}),)
    return Options(
        endpoint=given.endpoint,
        spec=spec,
        # Beside its volumes, so that who moves or removes the folder has both in hand.
        state=given.volumes / _JOURNAL if given.volumes and not given.state else given.state,
        volumes=given.volumes,
        registration=registration,
        calls=given.calls,
        faults_file=given.faults,
        faults=(*probe_error, *given.fault),
        ready_after=given.ready_after,
        fsync=given.fsync or given.volumes is not None,
        node_only=given.node_service_only,
    )


def _spec(given: argparse.Namespace) -> Spec:
    if given.pool and given.capacity is not None:
        raise ValueError("--capacity is one pool, --pool is another way to say so: give one of them")
    if given.volumes and "/" in given.node_id:
        raise ValueError("with --volumes folders are named after the node id, which therefore has no slash")
    return Spec(
        node_id=given.node_id,
        name=given.name,
        pools=dict(given.pool or (DEFAULT_POOLS if given.capacity is None else dict.fromkeys(DEFAULT_POOLS, given.capacity))),
        measured=given.volumes is not None and not given.pool and given.capacity is None,
        topology=dict(given.topology),
        unit=given.unit,
        minimum=given.min_size,
        maximum=given.max_size,
        without=frozenset(feature for feature in FEATURES if getattr(given, f"no_{feature}")),
    )


def _registration(given: argparse.Namespace) -> Registration | None:
    folder, endpoint = given.kubelet_registration_dir, given.kubelet_socket_path
    if (folder is None) != (endpoint is None):
        raise ValueError("--kubelet-registration-dir and --kubelet-socket-path go together")
    return None if folder is None else Registration(folder, endpoint)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hack.sim.driver.serve",
        description="A CSI driver for tests and demos: finite pools on one node, faults on demand, volumes that are entries in a journal "
        "or, with --volumes, folders that pods can write to. Not for anybody's data: no quota, no second copy.",
        epilog="Classes select a pool by the parameter `pool`; one without it gets the first.",
        allow_abbrev=False,
    )
    _add_identity(parser.add_argument)
    _add_space(parser.add_argument)
    _add_files(parser.add_argument)
    _add_kubelet(parser.add_argument)
    _add_trouble(parser.add_argument)
    return parser


def _add_identity(add: Add) -> None:
    add("--endpoint", required=True, metavar="PATH", help="the unix socket; a stale one is replaced")
    add("--node-id", required=True, metavar="ID")
    add("--name", default=DEFAULT_NAME, help="the driver's name (default: %(default)s)")
    alone = "serve no Controller service, as the node plugins of drivers that provision centrally; what is claimed stays"
    add("--node-service-only", action="store_true", help=alone)
    topology = "repeatable; default: topology.<name>/node=<node id>"
    add("--topology", type=_pair, action="append", default=[], metavar="KEY=VALUE", help=topology)


def _add_space(add: Add) -> None:
    pools = "repeatable (default: standard=100Gi; with --volumes what the file system has free)"
    add("--pool", type=_pool, action="append", metavar="NAME=SIZE", help=pools)
    add("--capacity", type=_size, metavar="SIZE", help="the same as --pool standard=SIZE")
    add("--unit", type=_size, default=MIB, metavar="SIZE", help="volumes are a whole number of units (default: 1Mi)")
    add("--min-size", type=_size, default=0, metavar="SIZE", help="smaller requests get this much")
    add("--max-size", type=_size, metavar="SIZE", help="larger requests are OUT_OF_RANGE")


def _add_files(add: Add) -> None:
    real = "volumes are folders in here, bind-mounted into pods (needs the right to mount); no raw block volumes; implies --fsync"
    add("--volumes", type=Path, metavar="DIR", help=real)
    journal = "the journal of volumes; without it a restart forgets them (default with --volumes: DIR/.journal)"
    add("--state", type=Path, metavar="FILE", help=journal)
    add("--fsync", action="store_true", help="the journal survives a crash of the machine too, not only of the process")
    add("--calls", type=Path, metavar="FILE", help="where every call is recorded, as JSON lines")
    add("--faults", type=Path, metavar="FILE", help="a JSON list of faults, read anew whenever it changes")


def _add_kubelet(add: Add) -> None:
    folder = "register with the kubelet, by a socket in this folder (on the node: /var/lib/kubelet/plugins_registry)"
    add("--kubelet-registration-dir", type=Path, metavar="DIR", help=folder)
    add("--kubelet-socket-path", metavar="PATH", help="the path of --endpoint on the node, which is what the kubelet is told")


def _add_trouble(add: Add) -> None:
    example = "repeatable, e.g. CreateVolume:times=1,lose=DEADLINE_EXCEEDED"
    add("--fault", type=_fault, action="append", default=[], metavar="FAULT", help=example)
    add("--ready-after", type=float, default=0.0, metavar="SECONDS", help="Probe answers ready=false until then")
    codes = [code.name for code in Code if code is not Code.OK]
    add("--probe-error", choices=codes, metavar="CODE", help="Probe fails with this status")
    for feature, capability in FEATURES.items():
        add(f"--no-{feature}", action="store_true", dest=f"no_{feature}", help=f"do not claim {capability}")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _pool(text: str) -> tuple[str, int]:
    name, size = _pair(text)
    return name, _size(size)


def _size(text: str) -> int:
    try:
        return parse_bytes(text)
    except BadQuantity as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _fault(text: str) -> Fault:
    try:
        return parse_fault(text)
    except BadFault as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error
