"""Programs as tables and pictures call them."""

from typing import Final

NAMES: Final = {
    "ours-ranked": "csi-node-sidecar, ranked",
    "ours-labelled": "csi-node-sidecar, ranked, claims by label",
    "ours-random": "csi-node-sidecar, random",
    "peer": "csi-provisioner",
    "peer-central": "csi-provisioner, one for the cluster",
}
CENTRAL: Final = "peer-central"
