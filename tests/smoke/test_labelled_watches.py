"""Sidecars hear only the claims that are for them, by a label that a policy keeps; without the policy they hear all, and go on."""

from __future__ import annotations

from hack.lib.control_plane import until
from hack.lib.programs import all_of, claim, pod
from sidecar.model import names
from tests.deploy.manifests import DEPLOY
from tests.harness.cluster import CLAIMS, PODS, Cluster, late, now

POLICY = (DEPLOY / "components" / "scoped-watches" / "policy.yaml").read_text()
BY_LABEL = "csi_node_sidecar_claims_by_label"
ARGS = ("--watch-scope=labelled", "--node-deployment-base-delay=500ms", "--node-deployment-max-delay=2s")


def is_labelled(cluster: Cluster) -> bool:
    made = cluster.create(f"{CLAIMS}?dryRun=All", claim("trial", "none"))
    return names.CLAIM_LABEL in made["metadata"].get("labels", {})


def test_claims_are_bound_whether_the_policy_is_there_or_not(cluster: Cluster) -> None:
    drivers = [cluster.driver(node) for node in ("n1", "n2")]
    sidecars = [cluster.sidecar(driver, *ARGS) for driver in drivers]
    cluster.plane.apply(POLICY)
    try:
        until(lambda: is_labelled(cluster), "the policy is in force")
        with all_of(drivers), all_of(sidecars):
            for driver, sidecar in zip(drivers, sidecars, strict=True):
                cluster.node(driver.node, driver)
                sidecar.until_ready()
            both(cluster, "before")
            assert [sidecar.metric(BY_LABEL) for sidecar in sidecars] == [1.0, 1.0]
            cluster.create(CLAIMS, claim("waits", late(drivers[0])))
            cluster.plane.kubectl("delete", "-f", "-", input=POLICY)
            until(lambda: not is_labelled(cluster), "the policy is gone")
            both(cluster, "without")
            until(lambda: [sidecar.metric(BY_LABEL) for sidecar in sidecars] == [0.0, 0.0], "both hear all claims")
            cluster.create(PODS, pod("waits", "waits"))
            cluster.bound("waits")
            for sidecar in sidecars:
                assert sum("All claims are watched" in line for line in sidecar.records("W")) == 1
    finally:
        cluster.plane.kubectl("delete", "--ignore-not-found", "-f", "-", input=POLICY)


def both(cluster: Cluster, suffix: str) -> None:
    """One claim of each kind is bound."""
    driver = cluster.driver()
    cluster.create(CLAIMS, claim(f"late-{suffix}", late(driver)))
    cluster.create(CLAIMS, claim(f"now-{suffix}", now(driver)))
    cluster.create(PODS, pod(f"late-{suffix}", f"late-{suffix}"))
    cluster.bound(f"late-{suffix}", f"now-{suffix}")
