"""The simulated API server: what kube-apiserver answers to the requests that our client sends, for the kinds we use.

It refuses what the real server refuses of those, so that no test passes in a world that cannot exist. tests/contract holds it against a
real kube-apiserver.

    api_server    `ApiServer`, the verbs on plain values: synchronous, with a clock and dice that are handed in
    kinds         what each kind looks like, one row each; `rules` what they must say, and what may not change
    schema        the types of fields, and the form in which objects and quantities are stored
    store         all objects, their history, and who is to be woken at a change
    reading       lists and watches over them, by `selectors`
    deletion      deletions, evictions, and the garbage collector; `patches` the three patches
    refusals      the errors of the real server, word for word where clients read them
    claim_policy  the one admission policy that is carried out
    inprocess     `InProcessApi`, the `KubeApi` that rooms hold, answered by an `ApiServer` in the same process
    serve         the same `ApiServer` behind HTTP: `access` what a request means, and who may do it

Other programs of a control plane (binder, scheduler, disruption budgets, kubelets) are in `stand_ins`. One is here, because objects pile
up without it: garbage collection, which runs when somebody calls `collect_garbage`.
"""

from hack.sim.cluster.api_server import ApiServer
from hack.sim.cluster.inprocess import Call, InProcessApi
from hack.sim.cluster.refusals import Refused

__all__ = ["ApiServer", "Call", "InProcessApi", "Refused"]
