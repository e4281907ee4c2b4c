"""Rooms are told what the command line says, and nothing else."""

from sidecar import settings
from sidecar.drain.marks import NodePolicy
from sidecar.drain.words import Intent, Policy
from sidecar.ownership.placement import RandomDelay, Ranked
from tests.harness.config import POD, parsed


def test_drain_decisions_are_made_where_a_policy_is_named_or_a_report_is_asked_for() -> None:
    assert not settings.drains(parsed(environ=POD).config)
    for word in ("--node-drain-policy=Ignore", "--node-drain-policy=NoSchedule", "--drain-report"):
        assert settings.drains(parsed(word, environ=POD).config)


def test_provisioning_is_told_of_gates_names_and_placement() -> None:
    told = settings.options(parsed("--volume-name-prefix=x", "--feature-gates=Topology=false", environ=POD).config)
    assert (told.volume_name_prefix, told.topology_gate, told.attributes_classes) == ("x", False, True)
    assert told.placement == RandomDelay(20.0, 60.0)
    ranked = parsed("--node-deployment-placement=ranked", "--node-deployment-base-delay=1s", environ=POD).config
    assert settings.options(ranked).placement == Ranked(RandomDelay(1.0, 60.0))


def test_capacity_is_told_whom_to_publish_for_and_the_owner_comes_later() -> None:
    words = ("--enable-capacity", "--capacity-poll-interval=5s", "--capacity-stale-after=5m")
    told = settings.publisher(parsed(*words, environ=POD).config, "d")
    assert (told.driver, told.manager, told.owner) == ("d", "external-provisioner-node-1", None)
    assert (told.poll_interval, told.stale_after, told.reserve_pending) == (5.0, 300.0, True)


def test_drain_decisions_are_told_in_words_of_their_own() -> None:
    told = settings.drain(parsed("--node-drain-policy=Evacuate", "--drain-report", "--drain-default-policy=Block", environ=POD).config, "d")
    assert (told.node, told.driver, told.namespace) == ("node-1", "d", "storage")
    assert (told.policy, told.default_policy) == (NodePolicy.EVACUATE, Policy.BLOCK)
    assert settings.drain(parsed(environ=POD).config, "d").default_policy is None
    assert settings.drain(parsed(environ=POD).config, "d").gate_assumes is Intent.RETIRE
    assert settings.drain(parsed("--drain-gate-assumes=reboot", environ=POD).config, "d").gate_assumes is Intent.REBOOT


def test_a_first_pause_beyond_the_longest_is_the_longest() -> None:
    retry = settings.retry(parsed("--retry-interval-start=9s", "--retry-interval-max=3s", environ=POD).config)
    assert retry.delay(0) == retry.delay(9) == 3.0
