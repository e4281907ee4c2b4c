"""Who may talk to the pods of the base, and to whom they may."""

from __future__ import annotations

import pytest

from tests.deploy.manifests import DEPLOY, rendered, the

pytestmark = pytest.mark.real_api


def test_the_cluster_may_ask_pods_for_their_pages_and_pods_reach_the_api_server_and_dns_and_nothing_else() -> None:
    objects = rendered(DEPLOY / "base")
    policy, template = the("NetworkPolicy", objects)["spec"], the("DaemonSet", objects)["spec"]["template"]
    assert policy["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    assert not template["spec"].get("hostNetwork"), "policies do not hold for pods in the network of the host"
    ports = [{"port": port["name"], "protocol": "TCP"} for item in template["spec"]["containers"] for port in item.get("ports", ())]
    assert policy["ingress"] == [{"from": [{"namespaceSelector": {}}], "ports": ports}]
    allowed = {(port["protocol"], port["port"]) for rule in policy["egress"] for port in rule["ports"]}
    assert allowed == {("TCP", 443), ("TCP", 6443), ("TCP", 53), ("UDP", 53)}
