"""Who may talk to the pods of the base, and to whom they may."""

from __future__ import annotations

import pytest

from tests.deploy.manifests import DEPLOY, Json, rendered, the

pytestmark = pytest.mark.real_api


def base() -> tuple[Json, Json]:
    objects = rendered(DEPLOY / "base")
    return the("NetworkPolicy", objects)["spec"], the("DaemonSet", objects)["spec"]["template"]


def test_the_policy_holds_for_the_pods_in_both_directions() -> None:
    policy, template = base()
    assert policy["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    assert not template["spec"].get("hostNetwork"), "policies do not hold for pods in the network of the host"


def test_pods_of_the_cluster_may_ask_for_the_pages_and_for_nothing_else() -> None:
    policy, template = base()
    (rule,) = policy["ingress"]
    ports = [port for container in template["spec"]["containers"] for port in container.get("ports", ())]
    assert rule["ports"] == [{"port": port["name"], "protocol": "TCP"} for port in ports]
    assert rule["from"] == [{"namespaceSelector": {}}]


def test_the_api_server_and_dns_can_be_reached() -> None:
    policy, _ = base()
    allowed = {(port["protocol"], port["port"]) for rule in policy["egress"] for port in rule["ports"]}
    assert allowed == {("TCP", 443), ("TCP", 6443), ("TCP", 53), ("UDP", 53)}
