"""Who decides about a volume, and what a word does that cannot be understood, that contradicts another, or that could not be read."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.policy import CLAIM, CLASS, NAMESPACE, Resolved, resolve, unread_key
from sidecar.drain.words import Intent, Policy
from sidecar.model import names
from sidecar.model.objects import Notes
from tests.harness.drain.samples import claim, class_, notes, volume

REBOOT, RETIRE = names.DRAIN_POLICY_REBOOT, names.DRAIN_POLICY_RETIRE
SOURCES = ("pv", "pvc", "class_", "namespace")
WORDS = (None, *Policy, "Foo", "", "block")


def resolved(
    intent: Intent = Intent.RETIRE, *, default: Policy | None = None, unread: frozenset[str] = frozenset(), **said: Notes | str | None
) -> Resolved:
    words = {source: word if isinstance(word, tuple) else notes(word) for source, word in {**dict.fromkeys(SOURCES), **said}.items()}
    return resolve(
        volume(notes=words["pv"]),
        None if unread_key(CLAIM, "apps/data-0") in unread else claim(notes=words["pvc"]),
        class_=None if unread_key(CLASS, "local") in unread else class_(notes=words["class_"]),
        namespace=words["namespace"],
        default=default,
        intent=intent,
        unread=unread,
    )


def both(default: Policy | None = None, **said: Any) -> tuple[Policy, Policy]:
    """For a reboot and for retiring."""
    reboot, retire = (resolved(intent, default=default, **said).policy for intent in Intent)
    return reboot, retire


@pytest.mark.parametrize(
    ("said", "policy", "source"),
    [
        pytest.param({"namespace": "Block", "class_": "Ignore", "pvc": "Reprovision"}, "Reprovision", "PersistentVolumeClaim", id="claim"),
        pytest.param({"pv": "Ignore", "class_": "Block", "namespace": "Block"}, "Ignore", "PersistentVolume", id="volume"),
        pytest.param({"namespace": "Block", "class_": "Reprovision"}, "Reprovision", "StorageClass local", id="class"),
        pytest.param({"namespace": "Reprovision"}, "Reprovision", "Namespace apps", id="namespace"),
        pytest.param({"default": Policy.REPROVISION}, "Reprovision", "driver", id="the driver's operator"),
        pytest.param({}, "Block", "default", id="nobody"),
        pytest.param({"default": Policy.ALLOW_IDLE}, "Block", "default", id="the operator's AllowIdle loosens reboots only"),
        pytest.param({"pv": "Ignore", "pvc": "Reprovision"}, "Reprovision", "PersistentVolumeClaim", id="claim stricter than volume"),
        pytest.param({"pv": "Block", "pvc": "Ignore"}, "Block", "PersistentVolume", id="volume stricter than claim"),
    ],
)
def test_the_word_nearest_to_the_volume_counts_and_of_volume_and_claim_the_stricter(said: dict[str, Any], policy: str, source: str) -> None:
    found = resolved(**said)
    assert (found.policy, found.source) == (policy, source)
    assert bool(found.problem) is ("pv" in said and "pvc" in said), "both are named"
    assert all(said[key] in found.problem for key in ("pv", "pvc") if found.problem)


@pytest.mark.parametrize("source", SOURCES)
def test_a_word_for_one_intent_outranks_the_one_for_both_on_the_same_object(source: str) -> None:
    for words, expected in [
        (((REBOOT, "Block"),), (Policy.BLOCK, Policy.BLOCK)),
        (((RETIRE, "Ignore"),), (Policy.ALLOW_IDLE, Policy.IGNORE)),
        ((*notes("Reprovision"), (REBOOT, "Ignore")), (Policy.IGNORE, Policy.REPROVISION)),
        ((*notes("Reprovision"), (RETIRE, "AllowIdle")), (Policy.REPROVISION, Policy.ALLOW_IDLE)),
        (notes("AllowIdle"), (Policy.ALLOW_IDLE, Policy.BLOCK)),
        (((RETIRE, "AllowIdle"),), (Policy.ALLOW_IDLE, Policy.ALLOW_IDLE)),
        ((*notes("Ignore"), (RETIRE, "Foo")), (Policy.IGNORE, Policy.BLOCK)),
    ]:
        assert both(**{source: words}) == expected
    assert both(Policy.IGNORE, **{source: notes("AllowIdle")}) == (Policy.ALLOW_IDLE, Policy.BLOCK)


@pytest.mark.parametrize("word", ["block", "IGNORE", "", " Ignore", "Evict", "Migrate", "x" * 10_000])
def test_a_word_that_is_no_policy_blocks_where_it_stands_and_is_named(word: str) -> None:
    found = resolved(class_=word, namespace="Ignore")
    assert (found.policy, found.source, found.by_order, found.plain) == (Policy.BLOCK, "StorageClass local", Policy.IGNORE, False)
    assert found.problem.startswith("StorageClass local says '") and "not a policy" in found.problem and len(found.problem) < 200
    by_name = resolved(pv=((RETIRE, "Foo"),))
    assert by_name.problem == "PersistentVolume says 'Foo' for retire, which is not a policy: Block applies"


UNREAD = {kind: unread_key(kind, name) for kind, name in ((CLAIM, "apps/data-0"), (CLASS, "local"), (NAMESPACE, "apps"))}


@pytest.mark.parametrize(
    ("said", "unread", "certain"),
    [
        pytest.param({}, {NAMESPACE}, False, id="nobody says anything, and the namespace may"),
        pytest.param({"class_": "Block"}, {NAMESPACE}, True, id="the class comes before the namespace"),
        pytest.param({}, {CLASS}, False, id="the class may"),
        pytest.param({"namespace": "Block"}, {CLASS}, False, id="the class would come before the namespace"),
        pytest.param({"pvc": "Block"}, {CLASS, NAMESPACE}, True, id="the claim comes before both"),
        pytest.param({"pv": "Block"}, {CLASS, NAMESPACE}, True, id="so does the volume"),
        pytest.param({"pv": "Ignore"}, {CLAIM}, False, id="the claim may be stricter than the volume"),
    ],
)
def test_a_policy_is_certain_where_all_that_comes_before_it_was_read(said: dict[str, Any], unread: set[str], certain: bool) -> None:
    found = resolved(unread=frozenset(UNREAD[kind] for kind in unread), **said)
    assert found.certain is certain
    others = frozenset({unread_key(CLAIM, "apps/other"), unread_key(CLASS, "slow"), unread_key(NAMESPACE, "other"), "nodes"})
    assert resolved(unread=others, **said).certain


@given(st.sampled_from(list(product(WORDS, repeat=4))), st.sampled_from([None, *Policy]), st.sampled_from(Intent))
def test_a_mistake_never_makes_it_laxer(words: tuple[str | None, ...], default: Policy | None, intent: Intent) -> None:
    found = resolved(intent, default=default, **dict(zip(SOURCES, words, strict=True)))
    strictness = list(Policy)
    assert strictness.index(found.policy) >= strictness.index(found.by_order)
    assert found.problem or found.policy is found.by_order
