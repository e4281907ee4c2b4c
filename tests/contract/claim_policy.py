"""The policy of deploy/components/scoped-watches on a server under test, and the claims that are tried on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hack.lib.control_plane import until
from hack.sim.cluster import claim_policy
from sidecar.model import names
from tests.contract.http_client import HttpClient, Json
from tests.contract.objects import claim

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
LABEL = names.CLAIM_LABEL
NODE, ASKED, ASKED_BETA = names.SELECTED_NODE, names.STORAGE_PROVISIONER, names.STORAGE_PROVISIONER_BETA


def claim_with(name: str, notes: dict[str, str] | None = None, *, volume: str = "", **meta: Any) -> Json:
    obj = claim(name)
    obj["metadata"] |= meta | ({"annotations": notes} if notes else {})
    obj["spec"] |= {"volumeName": volume} if volume else {}
    return obj


def install(http: HttpClient, **changed: Any) -> None:
    """The policy, with other fields of its spec if wanted, and its binding. It takes effect some moments later."""
    policy, binding = claim_policy.written()
    http.send("POST", POLICIES, policy | {"spec": policy["spec"] | changed})
    http.send("POST", BINDINGS, binding)


def remove(http: HttpClient) -> None:
    for path in (POLICIES, BINDINGS):
        http.send("DELETE", f"{path}/{names.CLAIM_POLICY}")


@contextmanager
def in_force(http: HttpClient) -> Iterator[None]:
    install(http)
    await_force(http)
    try:
        yield
    finally:
        remove(http)
        await_force(http, over=True)


def await_force(http: HttpClient, *, over: bool = False) -> None:
    """Until a new claim would get the label, or would not."""
    until(lambda: (LABEL in probe(http)) is not over, "the policy has taken effect")


def probe(http: HttpClient) -> dict[str, str]:
    """The labels that a new claim would get."""
    return http.send("POST", CLAIMS, claim_with("probe"), dryRun="All").labels
