"""The API server of the simulation: what kube-apiserver does with the kinds we use, as data, without a socket.

It refuses what the real server refuses, in the same words, so that no test passes in a world that cannot be. `Cluster` is
synchronous and has no clock or dice of its own; `InProcessApi` makes it the `KubeApi` that rooms hold; `serve_cluster` puts it
behind HTTP. A kind is one row of the table in `kinds`; what is special about it stands in `storage_rules` and `core_rules`.

What belongs here: what the API server answers. What other programs of a control plane do (bind claims, schedule pods, count
disruption budgets, run kubelets) belongs to the world around it, except for the two without which objects pile up: garbage
collection and the emptying of namespaces, which run when somebody calls `collect_garbage`.
"""

from sidecar.simulation.cluster.cluster import Cluster
from sidecar.simulation.cluster.inprocess import Call, InProcessApi
from sidecar.simulation.cluster.refusals import Refused

__all__ = ["Call", "Cluster", "InProcessApi", "Refused"]
