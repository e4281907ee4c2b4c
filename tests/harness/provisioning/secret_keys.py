"""The parameters of a class that name secrets, as upstream spells them."""

KINDS = ["provisioner", "controller-publish", "node-stage", "node-publish", "controller-expand", "node-expand", "controller-modify"]
PREFIX = "csi.storage.k8s.io/"
DEFAULT_NAME, DEFAULT_NAMESPACE = f"{PREFIX}secret-name", f"{PREFIX}secret-namespace"
NAME, NAMESPACE = f"{PREFIX}provisioner-secret-name", f"{PREFIX}provisioner-secret-namespace"
OLD_NAME, OLD_NAMESPACE = "csiProvisionerSecretName", "csiProvisionerSecretNamespace"


def provisioner(name: str = "a", namespace: str = "b") -> dict[str, str]:
    return {NAME: name, NAMESPACE: namespace}
