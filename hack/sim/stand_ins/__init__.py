"""Stand-ins for the other programs of a control plane and its nodes. Each does as much as this project meets of the real component.

They talk to the API server through `KubeApi` and watches of their own, as the real components do, so they see changes as late as the
sidecars do. tests/contract_control_plane runs the same scenarios on each stand-in and on the real component; what no scenario shows is
left out. Garbage collection is not here: the simulated API server does it when it is asked to.
"""

from hack.sim.stand_ins.binder import Binder, EphemeralClaims
from hack.sim.stand_ins.disruptions import Disruptions, PodGarbageCollector
from hack.sim.stand_ins.kubelet import Kubelet
from hack.sim.stand_ins.scheduler import Scheduler
from hack.sim.stand_ins.stand_in_base import StandInBase, claims_of
from hack.sim.stand_ins.stateful_sets import StatefulSets

__all__ = [
    "Binder",
    "Disruptions",
    "EphemeralClaims",
    "Kubelet",
    "PodGarbageCollector",
    "Scheduler",
    "StandInBase",
    "StatefulSets",
    "claims_of",
]
