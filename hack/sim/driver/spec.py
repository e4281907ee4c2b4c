"""What kind of local driver this is: its node, its pools, its sizes, what it does not claim; and the command line that says so."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from sidecar import __version__
from sidecar.csi import api
from sidecar.csi.api import NOTHING
from sidecar.model.quantity import parse_bytes
from sidecar.model.topology import Segment

DEFAULT_NAME: Final = "local.csi-node-sidecar.io"
DEFAULT_POOLS: Final[Mapping[str, int]] = MappingProxyType({"standard": 100 * 2**30})
MIB: Final = 2**20

FEATURES: Final = {
    "topology": api.TOPOLOGY,
    "capacity": api.GET_CAPACITY,
    "multi-writer": api.SINGLE_NODE_MULTI_WRITER,
}
"""What can be switched off, and the capability that then is not claimed."""

_LONGEST_NODE_ID: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What kind of driver this is. Sizes are bytes; every volume is a whole number of units."""

    node_id: str
    pools: Mapping[str, int] = field(default_factory=lambda: DEFAULT_POOLS)
    topology: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Empty: one key of the driver's own, whose value is the node id."""
    name: str = DEFAULT_NAME
    version: str = __version__
    unit: int = MIB
    measured: bool = False
    """The pool's size is what the file system under the volumes says, and the number in `pools` means nothing."""
    without: frozenset[str] = frozenset()
    """Names from FEATURES."""

    def __post_init__(self) -> None:
        if not self.node_id or len(self.node_id) > _LONGEST_NODE_ID:
            raise ValueError(f"a node id has 1 to {_LONGEST_NODE_ID} characters")

    @property
    def segment(self) -> Segment:
        return Segment.of(self.topology or {f"topology.{self.name}/node": self.node_id})

    def rounded(self, size: int) -> int:
        """The size of a volume of at least so many bytes."""
        return max(self.unit, -(-size // self.unit) * self.unit)


def read_options(arguments: Sequence[str]) -> argparse.Namespace:
    """With `spec` made of them. Ends the process with exit code 2 and a reason if the arguments make no sense."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.volumes and "/" in given.node_id:
        parser.error("with --volumes folders are named after the node id, which therefore has no slash")
    if (given.kubelet_registration_dir is None) != (given.kubelet_socket_path is None):
        parser.error("--kubelet-registration-dir and --kubelet-socket-path go together")
    # Beside its volumes, so that who moves or removes the folder has both in hand.
    given.state = given.volumes / ".journal" if given.volumes and not given.state else given.state
    try:
        given.spec = Spec(
            node_id=given.node_id,
            name=given.name,
            pools={name: parse_bytes(size) for name, size in given.pool} if given.pool else DEFAULT_POOLS,
            measured=given.volumes is not None and not given.pool,
            topology=dict(given.topology),
            without=frozenset(feature for feature in FEATURES if getattr(given, f"no_{feature}")),
        )
    except ValueError as error:
        parser.error(str(error))
    return given


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hack.sim.driver.serve",
        description="A CSI driver for tests and demos: finite pools on one node, faults on demand, volumes that are entries in a journal "
        "or, with --volumes, folders that pods can write to. Not for anybody's data: no quota, no second copy.",
        epilog="Classes select a pool by the parameter `pool`; one without it gets the first.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--endpoint", required=True, metavar="PATH", help="the unix socket; a stale one is replaced")
    add("--node-id", required=True, metavar="ID")
    add("--name", default=DEFAULT_NAME, help="the driver's name (default: %(default)s)")
    alone = "serve no Controller service, as the node plugins of drivers that provision centrally; what is claimed stays"
    add("--node-service-only", dest="node_only", action="store_true", help=alone)
    topology = "repeatable; default: topology.<name>/node=<node id>"
    add("--topology", type=pair, action="append", default=[], metavar="KEY=VALUE", help=topology)
    pools = "repeatable (default: standard=100Gi; with --volumes what the file system has free)"
    add("--pool", type=pair, action="append", metavar="NAME=SIZE", help=pools)
    real = "volumes are folders in here, bind-mounted into pods (needs the right to mount); no raw block volumes"
    add("--volumes", type=Path, metavar="DIR", help=real)
    journal = "the journal of volumes; without it a restart forgets them (default with --volumes: DIR/.journal)"
    add("--state", type=Path, metavar="FILE", help=journal)
    add("--calls", type=Path, metavar="FILE", help="where every call is recorded, as JSON lines")
    add("--faults", type=Path, metavar="FILE", help="a JSON list of faults, read anew whenever it changes")
    folder = "register with the kubelet, by a socket in this folder (on the node: /var/lib/kubelet/plugins_registry)"
    add("--kubelet-registration-dir", type=Path, metavar="DIR", help=folder)
    add("--kubelet-socket-path", metavar="PATH", help="the path of --endpoint on the node, which is what the kubelet is told")
    for feature, capability in FEATURES.items():
        add(f"--no-{feature}", action="store_true", dest=f"no_{feature}", help=f"do not claim {capability}")
    return parser


def pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value
