"""Who decides about a volume, and what a word that cannot be understood does."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.facts.snapshot import CLAIM, CLASS, NAMESPACE, unread_key
from sidecar.drain.judgement.policy import STRICTNESS, Resolved, resolve, strictest
from sidecar.drain.vocabulary import Intent, Policy
from tests.harness.drain import samples

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


@pytest.mark.parametrize(("intent", "policy"), [(Intent.REBOOT, Policy.ALLOW_IDLE), (Intent.RETIRE, Policy.BLOCK)])
def test_where_nobody_says_anything_the_intent_decides_or_the_drivers_operator(intent: Intent, policy: Policy) -> None:
    assert resolved(intent=intent) == Resolved(policy, "default", policy)
    assert resolved(intent=intent, default=Policy.MIGRATE) == Resolved(Policy.MIGRATE, "driver", Policy.MIGRATE)


@pytest.mark.parametrize("word", ["block", "IGNORE", "", " Ignore", "Evict", "x" * 10_000])
def test_a_word_that_is_no_policy_blocks_where_it_stands_and_is_named(word: str) -> None:
    found = resolved(class_=word, namespace="Ignore")
    assert (found.policy, found.source, found.by_order) == (Policy.BLOCK, "StorageClass local", Policy.IGNORE)
    assert found.problem.startswith("StorageClass local says '") and "not a policy" in found.problem and len(found.problem) < 200


def test_a_wrong_word_that_nobody_gets_to_is_no_problem() -> None:
    assert resolved(pvc="Ignore", class_="Foo").problem == ""


def test_of_volume_and_claim_that_contradict_each_other_the_stricter_is_taken_and_both_are_named() -> None:
    found = resolved(pv="Ignore", pvc="Migrate")
    assert (found.policy, found.source, found.by_order) == (Policy.MIGRATE, "PersistentVolumeClaim", Policy.IGNORE)
    assert "PersistentVolume says 'Ignore'" in found.problem and "PersistentVolumeClaim says 'Migrate'" in found.problem
    other = resolved(pv="Migrate", pvc="Ignore")
    assert (other.policy, other.source, other.by_order) == (Policy.MIGRATE, "PersistentVolume", Policy.MIGRATE)
    assert resolved(pv="Migrate", pvc="Migrate").problem == ""


def test_of_an_understood_and_a_wrong_word_on_volume_and_claim_the_wrong_one_blocks() -> None:
    found = resolved(pv="Ignore", pvc="ignore")
    assert (found.policy, found.by_order) == (Policy.BLOCK, Policy.IGNORE)
    assert "'ignore', which is not a policy" in found.problem


def test_without_claim_class_or_reference_the_rest_still_speaks() -> None:
    alone = samples.volume(claim="", policy="Ignore")
    assert resolve(alone, None, class_=None, default=None, intent=Intent.RETIRE).policy is Policy.IGNORE
    assert resolve(None, None, class_=None, default=None, intent=Intent.RETIRE).source == "default"


NO_CLAIM, NO_CLASS, NO_NAMESPACE = unread_key(CLAIM, "apps/data-0"), unread_key(CLASS, "local"), unread_key(NAMESPACE, "apps")


@pytest.mark.parametrize(
    ("said", "unread", "certain"),
    [
        ({}, {NO_NAMESPACE}, False),
        ({"class_": "Block"}, {NO_NAMESPACE}, True),
        ({}, {NO_CLASS}, False),
        ({"namespace": "Block"}, {NO_CLASS}, False),
        ({"pvc": "Block"}, {NO_CLASS, NO_NAMESPACE}, True),
        ({"pv": "Block"}, {NO_CLASS, NO_NAMESPACE}, True),
        ({"pv": "Ignore"}, {NO_CLAIM}, False),
        ({}, {unread_key(CLAIM, "apps/other"), unread_key(CLASS, "slow"), unread_key(NAMESPACE, "other"), "the other nodes"}, True),
    ],
)
def test_a_policy_is_certain_where_all_that_comes_before_it_was_read(said: dict[str, str], unread: set[str], certain: bool) -> None:
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


def test_the_strictest_of_several() -> None:
    several = tuple(Resolved(policy, "driver", policy) for policy in (Policy.ALLOW_IDLE, Policy.MIGRATE, Policy.IGNORE))
    for one, two, three in product(several, repeat=3):
        found = strictest((one, two, three))
        assert found and all(STRICTNESS.index(found.policy) >= STRICTNESS.index(item.policy) for item in (one, two, three))
    assert strictest(()) is None
