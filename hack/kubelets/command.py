"""`hack/cluster`: its subcommands and what each of them does."""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from hack.kubelets.cluster import DEFAULT_NAME, Cluster
from hack.kubelets.namespaces import ENVIRONMENT
from hack.lib.progress import say

# What follows such a subcommand is for another program, even if it looks like an option.
NO_OPTIONS = "\0"


def parser(description: str | None) -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="hack/cluster", description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    root.add_argument(
        "--name", default=os.environ.get("CSI_NODE_SIDECAR_CLUSTER", DEFAULT_NAME), help="which cluster (default: %(default)s)"
    )
    root.add_argument("--dir", type=Path, metavar="DIR", help="where everything of it is (default: clusters/NAME in the cache)")
    # These options may stand before or after the subcommand; a value given before must not be lost when it is missing after.
    which = argparse.ArgumentParser(add_help=False)
    which.add_argument("--name", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    which.add_argument("--dir", type=Path, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    words = root.add_subparsers(required=True, metavar="COMMAND")

    up_ = words.add_parser("up", parents=[which], help="make a cluster; prints the path of its kubeconfig")
    up_.add_argument("--nodes", type=int, default=2, metavar="N", help="how many (default: %(default)s)")
    up_.set_defaults(run=up)
    down_ = words.add_parser("down", parents=[which], help="end it, and remove all that is left of it")
    down_.set_defaults(run=down)
    load_ = words.add_parser("load", parents=[which], help="give OCI archives to all nodes as images")
    load_.add_argument("archives", nargs="+", type=Path, metavar="ARCHIVE")
    load_.set_defaults(run=load)
    kubectl_ = words.add_parser("kubectl", help="kubectl as its administrator", add_help=False, prefix_chars=NO_OPTIONS)
    kubectl_.add_argument("arguments", nargs=argparse.REMAINDER)
    kubectl_.set_defaults(run=kubectl)
    node_ = words.add_parser("node", parents=[which], help="do something with one node: see hack/cluster node --help")
    node_.add_argument("node", metavar="NODE", help="node-1, node-2, ...")
    _add_node_words(node_.add_subparsers(required=True, metavar="ACTION"))
    server_ = words.add_parser("apiserver", parents=[which], help="stop or start the API server")
    server_.add_argument("action", choices=("stop", "start"))
    server_.set_defaults(run=apiserver)
    return root


def _add_node_words(words: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    said = {
        "kill-kubelet": "SIGKILL; its containers go on",
        "start-kubelet": "again",
        "reboot": "all its processes and mounts end, its disk stays; prints nothing, and does not wait for Ready",
        "path": "print the folder that is the node's disk",
    }
    for action, help in said.items():
        words.add_parser(action, help=help).set_defaults(run=node, action=action)
    enter_ = words.add_parser("enter", help="run a command there (default: sh)", add_help=False, prefix_chars=NO_OPTIONS)
    enter_.add_argument("command", nargs=argparse.REMAINDER)
    enter_.set_defaults(run=enter)


def up(wanted: argparse.Namespace) -> int:
    cluster = Cluster.up(nodes=wanted.nodes, name=wanted.name, folder=wanted.dir)
    print(cluster.kubeconfig)
    return 0


def down(wanted: argparse.Namespace) -> int:
    Cluster.clear(name=wanted.name, folder=wanted.dir)
    say(f"nothing is left of the cluster {wanted.name}")
    return 0


def load(wanted: argparse.Namespace) -> int:
    _found(wanted).load(*wanted.archives)
    return 0


def kubectl(wanted: argparse.Namespace) -> int:
    return _become(_found(wanted).kubectl_command(*wanted.arguments))


def apiserver(wanted: argparse.Namespace) -> int:
    cluster = _found(wanted)
    if wanted.action == "stop":
        cluster.apiserver_stop()
    else:
        cluster.apiserver_start()
    return 0


def node(wanted: argparse.Namespace) -> int:
    one = _found(wanted).node(wanted.node)
    if wanted.action == "path":
        print(one.place.disk)
        return 0
    {"kill-kubelet": one.kill_kubelet, "start-kubelet": one.start_kubelet, "reboot": one.reboot}[wanted.action]()
    return 0


def enter(wanted: argparse.Namespace) -> int:
    return _become(_found(wanted).node(wanted.node).enter(*(wanted.command or ["sh"])), environment=ENVIRONMENT)


def _found(wanted: argparse.Namespace) -> Cluster:
    return Cluster.find(name=wanted.name, folder=wanted.dir)


def _become(command: Sequence[str], *, environment: dict[str, str] | None = None) -> int:
    """Replaces this process by the command."""
    try:
        return subprocess.run(command, check=False, env=environment).returncode
    except KeyboardInterrupt:
        return 130
