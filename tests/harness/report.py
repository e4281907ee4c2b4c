"""Results as hack/bench keeps them."""

from hack.benchmarks.results import Kept

_MACHINE = {"processors": "2 x Some CPU", "memory": "24 GiB", "system": "Debian GNU/Linux 12", "kernel": "6.1.0"}
_VERSIONS = {"csi-node-sidecar": "0.1.0", "commit": "abc1234", "Python": "3.11.7"}

MEMORY = Kept(
    "memory",
    ["memory", "--runs", "3", "--also=a b"],
    "2026-11-24T08:00:00+00:00",
    125.0,
    _MACHINE,
    _VERSIONS,
    "| program | cluster | resident MiB | synced after s |\n|---|---|--:|--:|\n| csi-node-sidecar | empty | 51.2 | 0.48 |\n"
    "| csi-provisioner | empty | 55.2 | 0.10 |\n| csi-node-sidecar | full | 51.7 | 1.90 |\n| csi-provisioner | full | 200.9 | 1.44 |\n\n"
    "Medians of 3 & more, by `/readyz`.\nVersions: kube-apiserver v1.36.3.\n",
)
SCALE = Kept(
    "scale",
    ["scale"],
    "2026-11-25T09:30:00+00:00",
    4000.0,
    _MACHINE,
    _VERSIONS,
    "| program | phase | claims | requests per volume |\n|---|---|--:|--:|\n| csi-node-sidecar, ranked, by label | burst | 1,000 | 4.3 |\n"
    "| csi-provisioner | burst | 1,000 | – |\n| a program whose name is much longer than fits beside its bar | burst | 1,000 | 13.7 |\n",
)
