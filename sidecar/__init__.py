"""csi-node-sidecar: one instance runs beside a CSI driver on every node, provisions and deletes that node's volumes,
publishes its capacity, and reports whether the node may be drained or retired. It is a drop-in for external-provisioner
run with `--node-deployment`. The rooms below, and which may import which, are described in `sidecar/README.md`.
"""

__version__ = "0.1.0"
