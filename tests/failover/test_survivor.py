"""Whether a pod of another node is replaced: each guard, and what is done when all hold."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.failover.brakes import DEBOUNCE
from sidecar.failover.evidence import MOST_AGE, Fact, Peer, Resource, either, excluded, only_copy, powered_off
from sidecar.failover.survivor import Cluster, Decision, Step, judge
from sidecar.failover.unit import IGNORED_BY_PIRAEUS, Attached, PodVolume, Said, Unit, Victim, Word, is_remediated, said_of, writes_to
from sidecar.model import names
from sidecar.model.nodes import Node, Pod, Taint
from sidecar.model.objects import Owner
from sidecar.model.topology import Requirement, Term

DRIVER, NOW = "drbd.example", 1000.0
OURS = Taint(names.of_driver(DRIVER, names.STORAGE_LOST), "peers-took-over", "NoSchedule")
PROVEN, FINE = Fact(True, "may_promote", "drbd", 3.0), Fact(True, "within all limits", "brakes")


def node(name: str, ready: str = "True", *taints: Taint, **fields: Any) -> Node:
    labels = {names.HOSTNAME: name, **fields.pop("labels", {})}
    return Node(name, f"uid-{name}", labels, taints, fields.pop("unschedulable", False), ready, "", False, MappingProxyType({}), **fields)


def pod(**changes: Any) -> Pod:
    owner = Owner("apps/v1", "StatefulSet", "db", "uid-db", controller=True)
    usual = {"claims": ("data",), "inline": (), "local": (), "tolerations": (), "node_selector": {}, "affinity": None, "static": False}
    usual |= {"phase": "Running", "deleting_since": "", "ready": True, "labels": {}, "owner": owner}
    return Pod(uid="uid-pod", namespace="ns", name="db-0", node="a", **(usual | changes))


def volume(name: str = "pv", **changes: Any) -> PodVolume:
    attached = Attached(f"va-{name}", f"uid-va-{name}", DRIVER, "a", name)
    usual = {"read_only": False, "many": False, "affinity": None, "proof": PROVEN, "attached": attached}
    return PodVolume(name, f"uid-{name}", name, f"ns/{name}", f"uid-claim-{name}", "", **(usual | changes))


def cluster(victim: Node | None = None, *, others: tuple[Node, ...] | None = None, **of_victim: Any) -> Cluster:
    away = victim or node("a", "Unknown", OURS)
    others = (node("b"), node("c")) if others is None else others
    drivers = {each.name: frozenset({DRIVER}) for each in (away, *others)}
    return Cluster(Victim(away, **({"boot_id": "boot", "silent_for": 40.0, "missing_for": 30.0} | of_victim)), DRIVER, others, drivers)


def decide(unit: Unit | None = None, of: Cluster | None = None, *, held: float = 6.0, brakes: Fact = FINE, acts: bool = True) -> Decision:
    unit = unit or Unit(pod(), (volume(),), (), Said())
    return judge(unit, of or cluster(), proven_for={each.name: held for each in unit.volumes}, brakes=brakes, acts=acts)


def with_(**changes: Any) -> Unit:
    return replace(Unit(pod(), (volume(),), (), Said()), **changes)


@pytest.mark.parametrize(
    ("of", "step"),
    [
        pytest.param(cluster(), Step.DELETE, id="it is not Ready, and has our taint"),
        pytest.param(cluster(node("a", "Unknown")), Step.TAINT, id="the taint comes first"),
        pytest.param(cluster(node("a", "False")), Step.TAINT, id="a kubelet that says itself that it is not Ready"),
        pytest.param(replace(cluster(node("a", "Unknown")), may_taint=False), Step.DELETE, id="F45 it could not be tainted"),
        pytest.param(cluster(node("a")), Step.EVICT, id="F02 it is Ready"),
    ],
)
def test_f01_f02_what_is_done_when_all_guards_hold(of: Cluster, step: Step) -> None:
    assert decide(of=of).step is step


@pytest.mark.parametrize(("silent", "step"), [(14.0, Step.EVICT), (15.0, Step.DELETE)])
def test_f04_force_on_exclusion_takes_a_kubelet_that_is_silent_for_as_long_as_the_lease_lasts(silent: float, step: Step) -> None:
    ready = cluster(node("a"), silent_for=silent)
    assert decide(with_(said=Said(Word.FORCE)), ready).step is step
    assert decide(of=ready).step is Step.EVICT


def test_f02_an_evicted_pod_is_waited_for_while_its_node_is_ready() -> None:
    ending = with_(pod=pod(deleting_since="2026-01-01T00:00:00Z"))
    assert decide(ending, cluster(node("a"))).step is Step.WAIT
    assert decide(ending).step is Step.DELETE


KEPT = {
    "F05 the proof has not held for long enough": ({}, {"held": 4.9}, "5 are needed"),
    "F18 somebody says Ignore": ({"said": Said(Word.IGNORE, "its claim says Ignore")}, {}, "says Ignore"),
    "F30 nobody would make it again": ({"pod": pod(owner=None)}, {}, "no controller"),
    "a static pod": ({"pod": pod(static=True)}, {}, "static"),
    "of a DaemonSet": ({"pod": pod(owner=Owner("apps/v1", "DaemonSet", "d", "u", controller=True))}, {}, "DaemonSet"),
    "F33 it has ended": ({"pod": pod(phase="Succeeded")}, {}, "ended"),
    "F31 one volume of two is not proven": ({"volumes": (volume(), volume("two", proof=Fact(None, "two: not known")))}, {}, "two: not"),
    "F31 one volume of two is still written to": ({"volumes": (volume("two", proof=Fact(False, "connected")), volume())}, {}, "connected"),
    "F31 it writes to its node": ({"others": ("hostPath logs",)}, {}, "hostPath logs"),
    "the evidence is old": ({"volumes": (volume(proof=replace(PROVEN, age=MOST_AGE + 0.1)),)}, {}, "may_promote"),
    "it writes to nothing of this driver": ({"volumes": (volume(read_only=True),)}, {}, "no volume of this driver"),
    "the brakes are on": ({}, {"brakes": Fact(False, "60 pods")}, "60 pods"),
    "what the brakes know is not known": ({}, {"brakes": Fact(None, "cannot be read")}, "cannot be read"),
    "F52 another remediator": ({}, {"of": cluster(remediated_by="taint x")}, "somebody else acts"),
    "F50 it is meant to be away": ({}, {"of": cluster(maintained="it is cordoned", missing_for=599.0)}, "left alone"),
    "F35 no other node": ({}, {"of": cluster(others=())}, "NoTarget"),
    "F35 all others are cordoned": ({}, {"of": cluster(others=(node("b", unschedulable=True), node("c", "False")))}, "NoTarget"),
    "F35 all others have lost their storage": ({}, {"of": cluster(others=(node("b", "True", OURS),))}, "NoTarget"),
    "F35 none has the driver": ({}, {"of": replace(cluster(), drivers={})}, f"not have {DRIVER}"),
    "F35 its volume is on this node alone": (
        {"volumes": (volume(affinity=(Term((Requirement(names.HOSTNAME, "In", ("a",)),)),)),)},
        {},
        "on this node alone",
    ),
    "its own selector": ({"pod": pod(node_selector={"disk": "fast"})}, {}, "selector"),
}


@pytest.mark.parametrize(("unit", "how", "why"), KEPT.values(), ids=KEPT)
def test_each_guard_keeps_the_pod_and_says_so(unit: dict[str, Any], how: dict[str, Any], why: str) -> None:
    found = decide(with_(**unit), **how)
    assert found.step is Step.NONE and why in found.why
    assert sum(not guard.fact.holds for guard in found.guards) >= 1


def test_f50_after_ten_minutes_a_maintained_node_is_failed_over() -> None:
    assert decide(of=cluster(node("a", "Unknown", OURS), maintained="it is cordoned", missing_for=600.0)).step is Step.DELETE


def test_read_only_volumes_need_no_proof_and_are_not_detached() -> None:
    two = (volume(), volume("two", read_only=True, proof=Fact(None, "")))
    assert decide(with_(volumes=two)).step is Step.DELETE
    assert decide(with_(pod=None, volumes=two)).detach == two[0].attached


def test_f33_an_attachment_that_no_pod_uses_is_detached_and_nobody_elses() -> None:
    left = with_(pod=None)
    assert decide(left).detach == volume().attached
    assert decide(replace(left, said=Said(Word.IGNORE, "claim"))).step is Step.NONE
    assert decide(replace(left, volumes=(volume(many=True),))).step is Step.NONE
    foreign = replace(volume().attached, attacher="other") if volume().attached else None
    assert decide(replace(left, volumes=(volume(attached=foreign),))).step is Step.NONE
    assert decide(left, cluster(node("a"), silent_for=2.0)).step is Step.NONE, "Kubernetes does it"


def test_f27_an_attachment_that_is_going_is_waited_for_and_its_error_told() -> None:
    going = volume(attached=Attached("va", "uid", DRIVER, "a", "pv", error="it hangs", deleting=True))
    found = decide(with_(pod=None, volumes=(going,)))
    assert found.step is Step.WAIT and "it hangs" in found.why


def test_f28_without_attachments_the_pod_alone_is_replaced() -> None:
    assert decide(with_(volumes=(volume(attached=None),))).step is Step.DELETE
    assert decide(with_(pod=None, volumes=(volume(attached=None),))).step is Step.NONE


def test_what_is_only_observed_says_what_would_be_done() -> None:
    found = decide(acts=False)
    assert found.step is Step.NONE and "Delete would be next" in found.why and found.guards[-1].name == "mode"


@pytest.mark.parametrize(
    ("annotations", "word"),
    [
        ([{}], Word.NONE),
        ([{names.FAILOVER: "ForceOnExclusion"}, {}], Word.FORCE),
        ([{names.FAILOVER: "ForceOnExclusion"}, {names.FAILOVER: "Ignore"}], Word.IGNORE),
        ([{names.FAILOVER: "Ignore"}, {names.FAILOVER: "ForceOnExclusion"}], Word.IGNORE),
        ([{IGNORED_BY_PIRAEUS: "false"}], Word.IGNORE),
        ([{names.FAILOVER: "force"}, {names.FAILOVER: "ForceOnExclusion"}], Word.IGNORE),
        ([{names.FAILOVER: "ForceOnExclusion"}, {names.FAILOVER: "force"}], Word.IGNORE),
        ([{names.FAILOVER: "ForceOnExclusion"}, {names.FAILOVER: ""}], Word.IGNORE),
        ([{names.FAILOVER: "ForceOnExclusion"}, {IGNORED_BY_PIRAEUS: ""}], Word.IGNORE),
    ],
)
def test_ignore_anywhere_wins_and_so_does_what_nobody_understands(annotations: list[dict[str, str]], word: Word) -> None:
    said = said_of(*annotations)
    assert said.word is word
    others = [
        text for notes in annotations for key, text in notes.items() if key == names.FAILOVER and text not in ("Ignore", "ForceOnExclusion")
    ]
    assert all(repr(text) in said.why for text in others)


# --- evidence ------------------------------------------------------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "primary": False, "failing_io": False, "may_promote": True, "has_quorum": True, "forbids_second": True, "up_to_date": True,
}  # fmt: skip


def resource(peer: Peer | None = None, **changes: Any) -> Resource:
    peers = {"a": peer or Peer("a", connected=False), "c": Peer("c", connected=True, up_to_date=True)}
    return Resource("pv", changes.pop("at", NOW - 3), peers=peers, **(GOOD | changes))


def test_all_of_it_together_is_a_proof() -> None:
    assert excluded(resource(), "a", NOW).holds
    assert excluded(resource(), "a", NOW).age == 3


@pytest.mark.parametrize("field", ["failing_io", "may_promote", "has_quorum", "forbids_second", "up_to_date"])
def test_f08_f10_f11_without_any_one_of_them_it_is_none(field: str) -> None:
    assert excluded(resource(**{field: not GOOD[field]}), "a", NOW).value is False
    assert excluded(resource(**{field: None}), "a", NOW).value is None


@pytest.mark.parametrize(
    ("found", "value"),
    [
        (None, None),
        (resource(at=NOW - 12.1), None),
        (resource(unknown="the reads disagree"), None),
        (resource(Peer("a", connected=None)), None),
        (resource(Peer("a", connected=True)), False),
        (resource(Peer("a", connected=False, cut_by_hand=True)), None),
    ],
)
def test_f34_f39_what_is_old_unknown_or_cut_by_hand_proves_nothing(found: Resource | None, value: bool | None) -> None:
    assert excluded(found, "a", NOW).value is value
    assert excluded(resource(), "nobody", NOW).value is None


def test_a_power_off_counts_for_the_boot_that_it_names_while_the_node_is_not_ready() -> None:
    def said(label: str, boot: str, ready: str = "Unknown") -> bool | None:
        return powered_off(node("a", ready, labels={names.POWERED_OFF: label} if label else {}), boot).value

    assert said("boot-1", "boot-1") is True
    assert [said("", "boot-1"), said("boot-1", "")] == [None, None]
    assert [said("boot-1", "boot-2"), said("boot-1", "boot-1", "True")] == [False, False]
    assert either(Fact(None, ""), Fact(True, "off")).holds and not either(Fact(None, ""), Fact(False, "no")).holds


def test_the_only_copy_is_here_if_no_connected_peer_has_one() -> None:
    assert only_copy(resource(), NOW) is False
    assert only_copy(replace(resource(), peers={"a": Peer("a", connected=False, up_to_date=True)}), NOW) is True
    assert only_copy(replace(resource(up_to_date=False), peers={}), NOW) is None
    assert only_copy(resource(at=NOW - 13), NOW) is None


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    """So that many cases have all their guards hold but one, or all of them."""
    return st.sampled_from([usual] * 6 * len(others) + [*others])


VOLUMES = st.lists(
    st.builds(
        lambda proof, age, read_only, many, attacher, deleting: {
            "proof": Fact(proof, "", "drbd", age),
            "read_only": read_only,
            "many": many,
            "attached": Attached("va", "uid", attacher, "a", "pv", deleting=deleting) if attacher else None,
        },
        mostly(True, False, None),
        mostly(MOST_AGE, MOST_AGE + 0.1),
        mostly(False, True),
        mostly(False, True),
        mostly(DRIVER, "other", ""),
        mostly(False, True),
    ),
    min_size=1,
    max_size=3,
)
PODS = st.sampled_from([None] * 5 + [pod()] * 5 + [pod(deleting_since="t"), pod(owner=None), pod(static=True), pod(phase="Failed")])
VICTIMS = st.builds(
    lambda ready, tainted, silent, **said: cluster(node("a", ready, *([OURS] if tainted else [])), silent_for=silent, **said),
    st.sampled_from(["True", "False", "Unknown"]),
    st.booleans(),
    st.sampled_from([0.0, 14.9, 15.0, 100.0]),
    remediated_by=mostly("", "taint x"),
)
BRAKES = st.builds(Fact, mostly(True, False, None), st.just("brakes"), st.just("brakes"), mostly(0.0, 13.0))
WORDS = mostly(Word.NONE, Word.FORCE, Word.FORCE, Word.IGNORE)
STRENGTH = {Step.NONE: 0, Step.WAIT: 0, Step.TAINT: 1, Step.EVICT: 1, Step.DELETE: 2, Step.DETACH: 2}


@settings(max_examples=400)
@given(VOLUMES, PODS, WORDS, VICTIMS, BRAKES, st.lists(mostly(DEBOUNCE, 4.9), min_size=3, max_size=3))
def test_no_write_without_a_fresh_proof_of_every_volume_and_what_is_forgotten_adds_none(
    volumes: list[dict[str, Any]], there: Pod | None, word: Word, of: Cluster, brakes: Fact, held: list[float]
) -> None:
    unit = Unit(there, tuple(volume(f"v{number}", **each) for number, each in enumerate(volumes)), (), Said(word))
    proven_for = {each.name: seconds for each, seconds in zip(unit.volumes, held, strict=False)}
    found = judge(unit, of, proven_for=proven_for, brakes=brakes, acts=True)
    victim, written = of.victim, [each for each in unit.volumes if not each.read_only]
    if found.step is not Step.NONE:
        assert written and all(each.proof.value is True and each.proof.age <= MOST_AGE for each in written)
        assert all(proven_for[each.name] >= DEBOUNCE for each in written)
        assert word is not Word.IGNORE and brakes.holds and not victim.remediated_by
        assert there is None or there == pod(deleting_since=there.deleting_since)
        assert all(guard.fact.holds for guard in found.guards)
    match found.step:
        case Step.DELETE:
            assert victim.node.ready != "True" or (word is Word.FORCE and victim.silent_for >= 15.0)
        case Step.EVICT:
            assert victim.node.ready == "True"
        case Step.TAINT:  # F49: of a node that is Ready, its own sidecar says what its storage is worth
            assert victim.node.ready != "True" and OURS not in victim.node.taints
        case Step.DETACH:
            assert there is None
            assert found.detach in [each.attached for each in written if not each.many]
            assert found.detach is not None and found.detach.attacher == DRIVER
        case _:
            assert found.detach is None
    observed = judge(unit, of, proven_for=proven_for, brakes=brakes, acts=False)
    assert STRENGTH[observed.step] == 0 and (observed.step is found.step or f"{found.step} would be next" in observed.why)

    def less(unit: Unit = unit, of: Cluster = of, brakes: Fact = brakes, proven_for: dict[str, float] = proven_for) -> Step:
        return judge(unit, of, proven_for=proven_for, brakes=brakes, acts=True).step

    for each in written:
        unknown = tuple(replace(one, proof=Fact(None, "")) if one is each else one for one in unit.volumes)
        assert less(replace(unit, volumes=unknown)) is Step.NONE
        assert less(proven_for={name: seconds for name, seconds in proven_for.items() if name != each.name}) is Step.NONE
    assert less(brakes=Fact(None, "")) is Step.NONE
    assert there is None or less(of=replace(of, nodes=())) is Step.NONE
    assert STRENGTH[less(of=replace(of, victim=replace(victim, silent_for=0.0)))] <= STRENGTH[found.step]


def test_f49_peers_never_taint_a_node_that_is_ready() -> None:
    for unit in (with_(), with_(said=Said(Word.FORCE)), with_(pod=None), with_(pod=pod(deleting_since="t"))):
        assert decide(unit, cluster(node("a"), silent_for=60.0)).step is not Step.TAINT


def test_f32_the_claim_of_a_generic_ephemeral_volume_is_one_of_the_pods_and_nothing_else_it_writes_to() -> None:
    volumes = [{"name": "data", "ephemeral": {"volumeClaimTemplate": {}}}]
    stored = {"metadata": {"name": "p", "namespace": "ns"}, "spec": {"volumes": volumes}}
    assert Pod.of(stored).claims == ("p-data",) and writes_to(stored) == (frozenset(), ())


@pytest.mark.parametrize(
    ("key", "acts"),
    [
        ("node.kubernetes.io/out-of-service", "taint node.kubernetes.io/out-of-service"),
        ("drbd.linbit.com/lost-quorum", "taint drbd.linbit.com/lost-quorum"),
        ("medik8s.io/remediation", "taint medik8s.io/remediation"),
        ("remediation.medik8s.io/self-node-remediation", "taint remediation.medik8s.io/self-node-remediation"),
        ("vxflexos.podmon.storage.dell.com", "taint vxflexos.podmon.storage.dell.com"),
        (OURS.key, ""),
        ("node.kubernetes.io/unreachable", ""),
    ],
)
def test_f52_another_programs_taint_is_named(key: str, acts: str) -> None:
    assert is_remediated(node("a", "Unknown", Taint(key, "", "NoSchedule"))) == acts


@pytest.mark.parametrize(
    ("others", "allowed", "why"),
    [
        ((node("b", unschedulable=True), node("c")), ("a", "b"), "b: it is cordoned"),
        ((node("c"), node("b", "False")), ("a", "b"), "b: it is not ready"),
        (
            (node("b", "True", Taint("x", "", "NoExecute")), node("c", unschedulable=True)),
            ("a", "b", "c"),
            "b: its taint x:NoExecute",
        ),
        ((node("b"), node("c")), ("a",), "on this node alone"),
    ],
)
def test_f35_each_node_that_its_volumes_allow_has_a_reason(others: tuple[Node, ...], allowed: tuple[str, ...], why: str) -> None:
    only = volume(affinity=(Term((Requirement(names.HOSTNAME, "In", allowed),)),))
    found = decide(with_(volumes=(only,)), cluster(others=others))
    assert found.step is Step.NONE and "NoTarget" in found.why and why in found.why


def test_a_proof_that_is_too_young_is_looked_at_again_as_soon_as_it_is_not() -> None:
    unit = with_(volumes=(volume(), volume("two")))
    found = judge(unit, cluster(), proven_for={"pv": 6.0, "two": 1.5}, brakes=FINE, acts=True)
    assert found.step is Step.NONE and found.again == 3.5


def test_what_a_pod_writes_to_besides_its_claims() -> None:
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "old", "persistentVolumeClaim": {"claimName": "old", "readOnly": True}},
        {"name": "time", "hostPath": {"path": "/etc/localtime"}},
        {"name": "logs", "hostPath": {"path": "/var/log"}},
        {"name": "conf", "configMap": {"name": "x"}},
        {"name": "mine", "ephemeral": {}},
        {"name": "share", "nfs": {"server": "x"}},
    ]
    mounts = [{"name": "time", "readOnly": True}, {"name": "logs"}, {"name": "data", "readOnly": True}]
    assert writes_to({"spec": {"volumes": volumes, "containers": [{"volumeMounts": mounts}]}}) == (
        frozenset({"old"}), ("hostPath logs", "nfs share"),
    )  # fmt: skip
