"""Reads for `explain pvc` who may take open claims, and whether the policy is there that labels claims."""

from typing import Final

from sidecar.commands.explain.hearing import UNKNOWN, Others
from sidecar.kube.api import CLASSES, KubeApi, Resource, find, records
from sidecar.kube.errors import ApiError
from sidecar.local.claim_labels import REMEDY
from sidecar.model import names
from sidecar.model.objects import Class
from sidecar.ownership.controller import nodes_with, published_space

_VERSIONS: Final = ("v1", "v1beta1")
_BY_METRIC: Final = "the metric csi_node_sidecar_claims_by_label is 1 of each sidecar that watches by label and 0 of one that hears all"


async def others_of(kube: KubeApi, driver: str, namespace: str) -> Others:
    try:
        classes = tuple([class_ async for class_ in records(kube, CLASSES, Class.of) if class_.provisioner == driver])
        nodes = await nodes_with(kube, driver)
    except ApiError as error:
        return Others(ignorance=str(error))
    return Others(nodes, await published_space(kube, driver, namespace), classes)


async def policy(kube: KubeApi) -> str:
    """Whether it is there. That it works is shown by labels."""
    name = names.CLAIM_POLICY
    try:
        for version in _VERSIONS:
            if await find(kube, _resource(version, "mutatingadmissionpolicies", names.MUTATING_POLICY), name) is None:
                continue
            if await find(kube, _resource(version, "mutatingadmissionpolicybindings", names.MUTATING_POLICY_BINDING), name) is None:
                return f"{name} is there, and no binding of that name puts it in force; {REMEDY}"
            return f"{name} is there, with its binding; {_BY_METRIC}"
    except ApiError as error:
        return f"{UNKNOWN}: {error}; {_BY_METRIC}"
    return f"there is none with the name {name}; {REMEDY}"


def _resource(version: str, plural: str, kind: str) -> Resource:
    return Resource(names.ADMISSION_GROUP, version, plural, kind, False)
