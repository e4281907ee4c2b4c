"""`hack/cluster`: its subcommands and what each of them does."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hack.kubelets.cluster import DEFAULT_NAME, Cluster
from hack.kubelets.namespaces import ENVIRONMENT

# What follows such a subcommand is for another program, even if it looks like an option.
NO_OPTIONS = "\0"


def parser(description: str | None) -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="hack/cluster", description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    name = os.environ.get("CSI_NODE_SIDECAR_CLUSTER", DEFAULT_NAME)
    root.add_argument("--name", default=name, help="which cluster (default: %(default)s)")
    words = root.add_subparsers(required=True, metavar="COMMAND")
    up_ = words.add_parser("up", help="make a cluster; prints the path of its kubeconfig")
    up_.add_argument("--nodes", type=int, default=2, metavar="N", help="how many (default: %(default)s)")
    up_.set_defaults(run=up)
    down_ = words.add_parser("down", help="end it, and remove all that is left of it")
    down_.set_defaults(run=down)
    load_ = words.add_parser("load", help="give OCI archives to all nodes as images")
    load_.add_argument("archives", nargs="+", type=Path, metavar="ARCHIVE")
    load_.set_defaults(run=load)
    kubectl_ = words.add_parser("kubectl", help="kubectl as its administrator", add_help=False, prefix_chars=NO_OPTIONS)
    kubectl_.add_argument("arguments", nargs=argparse.REMAINDER)
    kubectl_.set_defaults(run=kubectl)
    node_ = words.add_parser("node", help="run a command on a node (default: sh)", add_help=False, prefix_chars=NO_OPTIONS)
    node_.add_argument("node", metavar="NODE", help="node-1, node-2, ...")
    node_.add_argument("command", nargs=argparse.REMAINDER)
    node_.set_defaults(run=node)
    return root


def up(wanted: argparse.Namespace) -> int:
    print(Cluster.up(nodes=wanted.nodes, name=wanted.name).kubeconfig)
    return 0


def down(wanted: argparse.Namespace) -> int:
    Cluster.clear(name=wanted.name)
    print(f"cluster: nothing is left of the cluster {wanted.name}", file=sys.stderr)
    return 0


def load(wanted: argparse.Namespace) -> int:
    Cluster.find(name=wanted.name).load(*wanted.archives)
    return 0


def kubectl(wanted: argparse.Namespace) -> int:
    return _hand_over(Cluster.find(name=wanted.name).kubectl_command(*wanted.arguments))


def node(wanted: argparse.Namespace) -> int:
    one = Cluster.find(name=wanted.name).node(wanted.node)
    return _hand_over(one.enter(*(wanted.command or ["sh"])), environment=ENVIRONMENT)


def _hand_over(command: Sequence[str], *, environment: dict[str, str] | None = None) -> int:
    try:
        return subprocess.run(command, check=False, env=environment).returncode
    except KeyboardInterrupt:
        return 130
