"""Turns the configuration into the values that each room is given. Rooms never see the configuration, so none depends on flags."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import sidecar
from sidecar.capacity.view import Publisher
from sidecar.config.config import Config
from sidecar.config.table import ACT, CLEANUP, IGNORE, OFF, RANKED
from sidecar.engine.backoff import Backoff
from sidecar.local.here import Options
from sidecar.model import names
from sidecar.ownership.placement import Placement, RandomDelay, Ranked

if TYPE_CHECKING:
    from sidecar.drain.settings import Settings as DrainSettings
    from sidecar.failover import Settings as FailoverSettings


def retry(config: Config) -> Backoff:
    """How long any room waits after a failure."""
    return Backoff(config.retry_interval_start, max(config.retry_interval_max, config.retry_interval_start))


def options(config: Config) -> Options:
    """For provisioning."""
    return Options(
        volume_name_prefix=config.volume_name_prefix,
        volume_name_uuid_length=config.volume_name_uuid_length,
        default_fstype=config.default_fstype,
        extra_create_metadata=config.extra_create_metadata,
        strict_topology=config.strict_topology,
        topology_gate=config.gate("Topology"),
        controller_publish_readonly=config.controller_publish_readonly,
        cross_namespace_sources=config.gate("CrossNamespaceVolumeDataSource"),
        attributes_classes=config.gate("VolumeAttributesClass"),
        keeps_volume_mode=config.prevent_volume_mode_conversion,
        bids=config.node_deployment_immediate_binding,
        driver_timeout=config.timeout,
        placement=_placement(config),
    )


def publisher(config: Config, driver: str) -> Publisher:
    """For capacity; the owner of its objects is looked up later."""
    return Publisher(
        driver=driver,
        manager=names.capacity_manager(config.node_name),
        owner=None,
        for_immediate=config.capacity_for_immediate_binding,
        poll_interval=config.capacity_poll_interval,
        reserve_pending=config.capacity_reserve_pending,
        stale_after=config.capacity_stale_after,
    )


def drains(config: Config) -> bool:
    """Whether drain decisions are made at all. Naming the policy is enough, even Ignore: an annotation on the node may name another."""
    named = config.origins.get("node-drain-policy", "default") != "default"
    return named or config.drain_report or config.node_drain_policy != IGNORE


def traces(environ: Mapping[str, str]) -> bool:
    """Whether spans may have somewhere to go. What else the variables say is read by the room."""
    endpoints = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return any(environ.get(name, "").strip() for name in endpoints) and environ.get("OTEL_SDK_DISABLED", "").strip().lower() != "true"


def drain(config: Config, driver: str) -> "DrainSettings":
    """For drain decisions. Imports inside, so that a process that makes none does not have that room in memory."""
    from sidecar.drain.marks import NodePolicy
    from sidecar.drain.settings import Expiry, Settings
    from sidecar.drain.words import Intent, Policy

    return Settings(
        node=config.node_name,
        driver=driver,
        namespace=config.namespace,
        agent=sidecar.__version__,
        policy=NodePolicy(config.node_drain_policy),
        judges=config.drain_report,
        provisions=config.provisioning,
        default_policy=Policy(config.drain_default_policy) if config.drain_default_policy else None,
        allowed=config.evacuation_deadline,
        expiry=Expiry(config.evacuation_expiry),
        limit=config.max_concurrent_evacuations,
        maintains=config.maintenance,
        drains_guests=config.guest_drain,
        gate=bool(config.drain_gate_image),
        gate_image=config.drain_gate_image,
        gate_assumes=Intent(config.drain_gate_assumes),
        protects=config.drain_autoscaler_annotations,
        evicts=config.evacuation_evict,
        follows_loss=bool(config.node_delete_policy),
        clears=config.node_delete_policy == CLEANUP,
        gone_after=config.node_gone_after,
        reprovisions=config.allow_reprovision,
        reprovision_pause=config.reprovision_pause,
        own_pods=frozenset({f"{config.namespace}/{config.pod_name}"} if config.pod_name else ()),
        dry_run=config.dry_run,
    )


def fails_over(config: Config) -> bool:
    return config.failover != OFF


def failover(config: Config, driver: str) -> "FailoverSettings":
    from sidecar.failover import Settings

    return Settings(
        node=config.node_name,
        driver=driver,
        namespace=config.namespace,
        acts=config.failover == ACT and not config.dry_run,
    )


def _placement(config: Config) -> Placement:
    random = RandomDelay(config.node_deployment_base_delay, config.node_deployment_max_delay)
    return Ranked(random) if config.node_deployment_placement == RANKED else random
