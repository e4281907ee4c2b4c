"""What else runs in a control plane and on its nodes, as small as will do: each does what this project meets of the real component.

They talk to the API server as the real ones do, through `KubeApi` and watches of their own, so what they see is as late as
what the sidecars see. Each is held against the real component by scenarios that run on both (tests/contract_control_plane);
what no scenario shows is left out. Not here: garbage collection, which the embedded cluster does when it is asked to.
"""

from sidecar.simulation.stand_ins.attach_detach import AttachDetach
from sidecar.simulation.stand_ins.binder import Binder
from sidecar.simulation.stand_ins.daemon_sets import DaemonSetPods
from sidecar.simulation.stand_ins.eyes import Eyes, claims_of
from sidecar.simulation.stand_ins.kubelet import Kubelet
from sidecar.simulation.stand_ins.scheduler import Scheduler

__all__ = ["AttachDetach", "Binder", "DaemonSetPods", "Eyes", "Kubelet", "Scheduler", "claims_of"]
