"""The simulated API server: what kube-apiserver answers for the kinds we use.

It refuses what the real server refuses, in the same words, so that no test passes in a world that cannot exist. tests/contract holds
it against a real kube-apiserver.

    cluster     `Cluster`, the verbs on plain values: synchronous, with a clock and dice that are handed in
    inprocess   `InProcessApi`, the `KubeApi` that rooms hold, answered by a `Cluster` in the same process
    serve       the same `Cluster` behind HTTP, for kubectl and for programs in other processes
    streaming   one open watch: when its events and bookmarks are sent, and when it ends
    refusals    the errors of the real server, word for word
    kinds/      what each kind looks like and which rules it has; to add a kind, add a row in `kinds/table`
    storage/    the objects and their history, lists and watches over them
    writes/     deletion, eviction, garbage collection and patches
    http/       from a request to an answer: routes, access rights, faults on demand

Other programs of a control plane (binder, scheduler, disruption budgets, kubelets) are in `stand_ins`. Two are here, because objects pile
up without them: garbage collection and the emptying of namespaces. They run when somebody calls `collect_garbage`.
"""

from hack.sim.cluster.cluster import Cluster
from hack.sim.cluster.inprocess import Call, InProcessApi
from hack.sim.cluster.refusals import Refused

__all__ = ["Call", "Cluster", "InProcessApi", "Refused"]
