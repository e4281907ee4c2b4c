"""csi-node-sidecar: one instance runs beside a CSI driver on every node, provisions and deletes that node's volumes,
publishes its capacity, and says what draining or losing the node would cost. It is a drop-in for external-provisioner
run with `--node-deployment`. The rooms below, and who may import whom, are described in the README under *Architecture*.
"""

__version__ = "0.1.0"
