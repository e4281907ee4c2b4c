"""The data of a simulated API server, copied and put back: what was deleted since is there again, what was made since is gone."""

import copy
from typing import Any

from hack.sim.cluster import Cluster

Backup = tuple[Any, int]


def back_up(cluster: Cluster) -> Backup:
    return copy.deepcopy(cluster.store._histories), cluster.store.revision


def put_back(cluster: Cluster, backup: Backup) -> None:
    """Versions go back too. Watches that are open see nothing of it, as with a server that accepts a version that it has not reached."""
    histories, revision = backup
    cluster.store._histories, cluster.store.revision = copy.deepcopy(histories), revision
