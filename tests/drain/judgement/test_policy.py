"""Who decides about a volume, what a word does that cannot be understood, and that a remedy loosens the verdict it speaks of."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.facts.snapshot import CLAIM, CLASS, NAMESPACE, Snapshot, unread_key
from sidecar.drain.judgement.assess import assess
from sidecar.drain.judgement.assessment import Assessment, Blocker
from sidecar.drain.judgement.policy import STRICTNESS, Resolved, resolve
from sidecar.drain.vocabulary import MEANING, Intent, Policy, Reason, Status
from sidecar.model import names
from sidecar.model.nodes import SnapshotContent
from sidecar.model.objects import Notes, Volume
from tests.harness.drain import samples, worlds

WORDS = st.sampled_from([None, *Policy, "Foo", "", "block"])


def resolved(
    *,
    pv: str | None = None,
    pvc: str | None = None,
    class_: str | None = None,
    namespace: str | None = None,
    default: Policy | None = None,
    intent: Intent = Intent.RETIRE,
) -> Resolved:
    return resolve(
        samples.volume(policy=pv),
        samples.claim(policy=pvc),
        class_=samples.class_(policy=class_),
        namespace=samples.notes(namespace),
        default=default,
        intent=intent,
    )


def test_each_source_gives_way_to_the_one_that_is_nearer_to_the_volume() -> None:
    said: dict[str, Any] = {"namespace": "AllowIdle", "class_": "Migrate", "pvc": "Reprovision"}
    assert resolved(**said, default=Policy.IGNORE).source == "PersistentVolumeClaim"
    said.pop("pvc")
    assert (resolved(**said).policy, resolved(**said).source) == (Policy.MIGRATE, "StorageClass local")
    said.pop("class_")
    found = resolved(**said, intent=Intent.REBOOT)
    assert (found.policy, found.source) == (Policy.ALLOW_IDLE, "Namespace apps")
    found = resolved(pv="Ignore", class_="Block")
    assert (found.policy, found.source, found.problem) == (Policy.IGNORE, "PersistentVolume", "")


def test_where_nobody_says_anything_the_intent_decides_or_the_drivers_operator() -> None:
    for intent, policy in [(Intent.REBOOT, Policy.ALLOW_IDLE), (Intent.RETIRE, Policy.BLOCK)]:
        assert resolved(intent=intent) == Resolved(policy, "default", policy)
        assert resolved(intent=intent, default=Policy.MIGRATE) == Resolved(Policy.MIGRATE, "driver", Policy.MIGRATE)


def test_a_word_that_is_no_policy_blocks_where_it_stands_and_is_named() -> None:
    for word in ["block", "IGNORE", "", " Ignore", "Evict", "x" * 10_000]:
        found = resolved(class_=word, namespace="Ignore")
        assert (found.policy, found.source, found.by_order) == (Policy.BLOCK, "StorageClass local", Policy.IGNORE)
        assert found.problem.startswith("StorageClass local says '") and "not a policy" in found.problem and len(found.problem) < 200


def test_of_contradicting_volume_and_claim_the_stricter_counts_and_both_are_named() -> None:
    found = resolved(pv="Ignore", pvc="Migrate")
    assert (found.policy, found.source, found.by_order) == (Policy.MIGRATE, "PersistentVolumeClaim", Policy.IGNORE)
    assert "PersistentVolume says 'Ignore'" in found.problem and "PersistentVolumeClaim says 'Migrate'" in found.problem
    other = resolved(pv="Migrate", pvc="Ignore")
    assert (other.policy, other.source, other.by_order) == (Policy.MIGRATE, "PersistentVolume", Policy.MIGRATE)
    assert resolved(pv="Migrate", pvc="Migrate").problem == ""


NO_CLAIM, NO_CLASS, NO_NAMESPACE = unread_key(CLAIM, "apps/data-0"), unread_key(CLASS, "local"), unread_key(NAMESPACE, "apps")


def test_a_policy_is_certain_where_all_that_comes_before_it_was_read() -> None:
    for said, unread, certain in [
        ({}, {NO_NAMESPACE}, False),
        ({"class_": "Block"}, {NO_NAMESPACE}, True),
        ({}, {NO_CLASS}, False),
        ({"namespace": "Block"}, {NO_CLASS}, False),
        ({"pvc": "Block"}, {NO_CLASS, NO_NAMESPACE}, True),
        ({"pv": "Block"}, {NO_CLASS, NO_NAMESPACE}, True),
        ({"pv": "Ignore"}, {NO_CLAIM}, False),
        ({}, {unread_key(CLAIM, "apps/other"), unread_key(CLASS, "slow"), unread_key(NAMESPACE, "other"), "the other nodes"}, True),
    ]:
        words = {"pv": None, "pvc": None, "class_": None, "namespace": None} | said
        found = resolve(
            samples.volume(policy=words["pv"]),
            None if NO_CLAIM in unread else samples.claim(policy=words["pvc"]),
            class_=None if NO_CLASS in unread else samples.class_(policy=words["class_"]),
            namespace=samples.notes(words["namespace"]),
            default=None,
            intent=Intent.RETIRE,
            unread=unread,
        )
        assert found.certain is certain


@given(WORDS, WORDS, WORDS, WORDS, st.sampled_from(list(Intent)))
def test_a_mistake_never_makes_it_laxer(pv: str | None, pvc: str | None, class_: str | None, namespace: str | None, intent: Intent) -> None:
    found = resolved(pv=pv, pvc=pvc, class_=class_, namespace=namespace, intent=intent)
    assert STRICTNESS.index(found.policy) >= STRICTNESS.index(found.by_order)
    assert found.problem or found.policy is found.by_order


# --- one policy per intent ----------------------------------------------------------------------------------------------

REBOOT, RETIRE = names.DRAIN_POLICY_REBOOT, names.DRAIN_POLICY_RETIRE


def both(
    *, pv: Notes = (), pvc: Notes = (), class_: Notes = (), namespace: Notes = (), default: Policy | None = None, heeded: bool = True
) -> tuple[Policy, Policy]:
    """For a reboot and for retiring."""
    return tuple(
        resolve(
            samples.volume(notes=pv),
            samples.claim(notes=pvc),
            class_=samples.class_(notes=class_),
            namespace=namespace,
            default=default,
            intent=intent,
            heeded=heeded,
        ).policy
        for intent in Intent
    )  # type: ignore[return-value]


def test_a_policy_for_one_intent_outranks_the_one_for_both_on_the_same_object() -> None:
    for source in ["pv", "pvc", "class_", "namespace"]:
        assert both(**{source: ((REBOOT, "Block"),)}) == (Policy.BLOCK, Policy.BLOCK)
        assert both(**{source: ((RETIRE, "Ignore"),)}) == (Policy.ALLOW_IDLE, Policy.IGNORE)
        assert both(**{source: (*samples.notes("Migrate"), (REBOOT, "Ignore"))}) == (Policy.IGNORE, Policy.MIGRATE)
        assert both(**{source: (*samples.notes("Migrate"), (RETIRE, "AllowIdle"))}) == (Policy.MIGRATE, Policy.ALLOW_IDLE)


def test_allow_idle_loosens_a_reboot_only_unless_it_is_said_for_retiring_by_name() -> None:
    for source in ["pv", "pvc", "class_", "namespace"]:
        assert both(**{source: samples.notes("AllowIdle")}) == (Policy.ALLOW_IDLE, Policy.BLOCK)
        assert both(**{source: samples.notes("AllowIdle")}, default=Policy.IGNORE) == (Policy.ALLOW_IDLE, Policy.BLOCK)
        assert both(**{source: ((RETIRE, "AllowIdle"),)}) == (Policy.ALLOW_IDLE, Policy.ALLOW_IDLE)


def test_a_wrong_word_for_one_intent_names_the_intent() -> None:
    found = resolve(samples.volume(notes=((RETIRE, "Foo"),)), None, class_=None, default=None, intent=Intent.RETIRE)
    assert found.problem == "PersistentVolume says 'Foo' for retire, which is not a policy: Block applies"
    assert both(pv=(*samples.notes("Ignore"), (RETIRE, "Foo"))) == (Policy.IGNORE, Policy.BLOCK)


# --- what tenants say ---------------------------------------------------------------------------------------------------

SAYS_BLOCK = samples.notes("Block")


def test_where_tenants_are_not_heeded_they_hold_up_no_reboot() -> None:
    for said, heeded, unheeded in [
        ({"pvc": SAYS_BLOCK}, (Policy.BLOCK, Policy.BLOCK), (Policy.ALLOW_IDLE, Policy.BLOCK)),
        ({"namespace": SAYS_BLOCK}, (Policy.BLOCK, Policy.BLOCK), (Policy.ALLOW_IDLE, Policy.BLOCK)),
        ({"pvc": ((REBOOT, "Block"),)}, (Policy.BLOCK, Policy.BLOCK), (Policy.ALLOW_IDLE, Policy.BLOCK)),
        ({"pvc": samples.notes("block")}, (Policy.BLOCK, Policy.BLOCK), (Policy.ALLOW_IDLE, Policy.BLOCK)),
        ({"pvc": samples.notes("Migrate")}, (Policy.MIGRATE, Policy.MIGRATE), (Policy.ALLOW_IDLE, Policy.MIGRATE)),
        ({"pvc": samples.notes("Ignore")}, (Policy.IGNORE, Policy.IGNORE), (Policy.IGNORE, Policy.IGNORE)),
        ({"pvc": samples.notes("AllowIdle")}, (Policy.ALLOW_IDLE, Policy.BLOCK), (Policy.ALLOW_IDLE, Policy.BLOCK)),
        ({"pv": SAYS_BLOCK}, (Policy.BLOCK, Policy.BLOCK), (Policy.BLOCK, Policy.BLOCK)),
        ({"class_": SAYS_BLOCK}, (Policy.BLOCK, Policy.BLOCK), (Policy.BLOCK, Policy.BLOCK)),
        ({"pvc": SAYS_BLOCK, "class_": SAYS_BLOCK}, (Policy.BLOCK, Policy.BLOCK), (Policy.BLOCK, Policy.BLOCK)),
        ({"pvc": SAYS_BLOCK, "pv": samples.notes("Ignore")}, (Policy.BLOCK, Policy.BLOCK), (Policy.IGNORE, Policy.IGNORE)),
        ({"pvc": SAYS_BLOCK, "default": Policy.BLOCK}, (Policy.BLOCK, Policy.BLOCK), (Policy.BLOCK, Policy.BLOCK)),
        ({"pvc": SAYS_BLOCK, "default": Policy.IGNORE}, (Policy.BLOCK, Policy.BLOCK), (Policy.ALLOW_IDLE, Policy.BLOCK)),
    ]:
        assert (both(**said), both(**said, heeded=False)) == (heeded, unheeded)


# --- Whoever does what a remedy says loosens the verdict it speaks of, and no other ---


_ADVICE = re.compile(rf"({re.escape(names.GROUP)}/[\w.-]+): (\w+)")

LOOSENS = {names.DRAIN_POLICY_REBOOT: Intent.REBOOT, names.DRAIN_POLICY_RETIRE: Intent.RETIRE, names.ACKNOWLEDGED: Intent.RETIRE}
"""The annotations on volumes that a remedy may advise."""


def advised(remedy: str) -> list[tuple[str, str]]:
    return [(key, word) for key, word in _ADVICE.findall(remedy) if key != names.FORCE_DRAIN]


def heeding(snapshot: Snapshot, blocker: Blocker, key: str, word: str) -> Snapshot:
    """The same with the annotation on the object that the remedy speaks of."""
    said = (key, word)
    if blocker.class_ == "Snapshot":
        return replace(snapshot, contents=tuple(_on(snapshot.contents, blocker.name, said)))
    if key == names.ACKNOWLEDGED:
        return replace(snapshot, volumes=tuple(_on(snapshot.volumes, blocker.volume, said)), void_acknowledgements=frozenset())
    if f"annotate the {names.VOLUME} with {key}" in blocker.remedy:
        return replace(snapshot, volumes=tuple(_on(snapshot.volumes, blocker.volume, said)))
    full_name = f"{blocker.namespace}/{blocker.name}"
    claim = snapshot.claims[full_name]
    return replace(snapshot, claims={**snapshot.claims, full_name: replace(claim, notes=_noted(claim.notes, said))})


def _on(objects: Iterable[Volume | SnapshotContent], name: str, said: tuple[str, str]) -> Iterator[Volume | SnapshotContent]:
    return (replace(item, notes=_noted(item.notes, said)) if item.name == name else item for item in objects)


def _noted(notes: Notes, said: tuple[str, str]) -> Notes:
    return tuple(sorted({**dict(notes), said[0]: said[1]}.items()))


def against(found: Assessment, intent: Intent) -> set[str]:
    return {blocker.key for blocker in found.blockers if intent in blocker.blocks}


def test_no_remedy_advises_a_policy_for_both_intents() -> None:
    for reason in MEANING:
        assert {key for key, _ in advised(MEANING[reason].remedy)} <= set(LOOSENS)


def test_a_remedy_helps() -> None:
    for snapshot, reason in [
        (samples.used(claims=(samples.claim(policy="Block"),)), Reason.WOULD_STRAND),
        (samples.used(), Reason.VOLUME_IN_USE),
        (samples.idle(), Reason.LAST_COPY),
        (samples.idle(claims=(samples.claim(policy="AllowIdle"),)), Reason.LAST_COPY),
        (samples.idle(volumes=(samples.volume(phase="Released"),)), Reason.RELEASE_PENDING),
        (samples.idle(volumes=(samples.volume(phase="Released", reclaim_policy="Retain"),)), Reason.RECLAIM_RETAIN),
        (samples.idle(renamed=frozenset({"pv-0"})), Reason.NODE_RENAMED),
        (samples.snapshot(contents=(samples.content(),)), Reason.SNAPSHOT_ON_NODE),
        (samples.idle(volumes=(samples.volume(policy="Block"),)), Reason.LAST_COPY),
        (samples.used(volumes=(samples.volume(policy="Block"),)), Reason.WOULD_STRAND),
        (samples.used(volumes=(samples.volume(policy="Block"),)), Reason.VOLUME_IN_USE),
        (samples.idle(volumes=(samples.volume(policy="AllowIdle"),)), Reason.LAST_COPY),
        (samples.idle(claims=()), Reason.LAST_COPY),
        (samples.idle(volumes=(samples.volume(claim="", phase="Available"),), claims=()), Reason.LAST_COPY),
    ]:
        (blocker,) = (item for item in assess(snapshot).blockers if item.reason is reason)
        ((key, word),) = advised(blocker.remedy)
        after = heeding(snapshot, blocker, key, word)
        assert reason not in {item.reason for item in assess(after).blockers}
        assert assess(after).verdict(LOOSENS[key]).status is Status.TRUE


@given(st.integers(0, 2**32))
def test_no_remedy_loosens_the_other_verdict(seed: int) -> None:
    snapshot = worlds.drawn(Random(seed))
    before = assess(snapshot)
    for blocker in before.blockers:
        for key, word in advised(blocker.remedy):
            after, (other,) = assess(heeding(snapshot, blocker, key, word)), set(Intent) - {LOOSENS[key]}
            assert LOOSENS[key] in blocker.blocks
            assert against(after, other) >= against(before, other)
            assert before.verdict(other).status is Status.TRUE or after.verdict(other).status is not Status.TRUE
