"""Who decides about a volume, and what a word that cannot be understood does."""

from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.facts.snapshot import CLAIM, CLASS, NAMESPACE, unread_key
from sidecar.drain.judgement.policy import STRICTNESS, Resolved, resolve, strictest
from sidecar.drain.vocabulary import Intent, Policy
from sidecar.model import names
from sidecar.model.objects import Notes
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


def test_where_nobody_says_anything_the_intent_decides_or_the_drivers_operator() -> None:
    for intent, policy in [(Intent.REBOOT, Policy.ALLOW_IDLE), (Intent.RETIRE, Policy.BLOCK)]:
        assert resolved(intent=intent) == Resolved(policy, "default", policy)
        assert resolved(intent=intent, default=Policy.MIGRATE) == Resolved(Policy.MIGRATE, "driver", Policy.MIGRATE)


def test_a_word_that_is_no_policy_blocks_where_it_stands_and_is_named() -> None:
    for word in ["block", "IGNORE", "", " Ignore", "Evict", "x" * 10_000]:
        found = resolved(class_=word, namespace="Ignore")
        assert (found.policy, found.source, found.by_order) == (Policy.BLOCK, "StorageClass local", Policy.IGNORE)
        assert found.problem.startswith("StorageClass local says '") and "not a policy" in found.problem and len(found.problem) < 200


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


def test_the_strictest_of_several() -> None:
    several = tuple(Resolved(policy, "driver", policy) for policy in (Policy.ALLOW_IDLE, Policy.MIGRATE, Policy.IGNORE))
    for one, two, three in product(several, repeat=3):
        found = strictest((one, two, three))
        assert found and all(STRICTNESS.index(found.policy) >= STRICTNESS.index(item.policy) for item in (one, two, three))
    assert strictest(()) is None


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


def test_a_word_for_one_intent_outranks_the_one_for_both_on_the_same_object_and_says_nothing_of_the_other() -> None:
    for source in ["pv", "pvc", "class_", "namespace"]:
        assert both(**{source: ((REBOOT, "Block"),)}) == (Policy.BLOCK, Policy.BLOCK)
        assert both(**{source: ((RETIRE, "Ignore"),)}) == (Policy.ALLOW_IDLE, Policy.IGNORE)
        assert both(**{source: (*samples.notes("Migrate"), (REBOOT, "Ignore"))}) == (Policy.IGNORE, Policy.MIGRATE)
        assert both(**{source: (*samples.notes("Migrate"), (RETIRE, "AllowIdle"))}) == (Policy.MIGRATE, Policy.ALLOW_IDLE)


def test_between_objects_the_order_is_the_same_for_each_intent() -> None:
    assert both(pvc=((REBOOT, "Block"),), class_=samples.notes("Ignore")) == (Policy.BLOCK, Policy.IGNORE)
    assert both(class_=((RETIRE, "Migrate"),), namespace=samples.notes("Block")) == (Policy.BLOCK, Policy.MIGRATE)
    assert both(pv=((RETIRE, "Ignore"),), pvc=((RETIRE, "Migrate"),)) == (Policy.ALLOW_IDLE, Policy.MIGRATE)


def test_allow_idle_loosens_a_reboot_only_unless_it_is_said_for_retiring_by_name() -> None:
    for source in ["pv", "pvc", "class_", "namespace"]:
        assert both(**{source: samples.notes("AllowIdle")}) == (Policy.ALLOW_IDLE, Policy.BLOCK)
        assert both(**{source: samples.notes("AllowIdle")}, default=Policy.IGNORE) == (Policy.ALLOW_IDLE, Policy.BLOCK)
        assert both(**{source: ((RETIRE, "AllowIdle"),)}) == (Policy.ALLOW_IDLE, Policy.ALLOW_IDLE)


def test_what_allow_idle_does_not_loosen_says_so() -> None:
    found = resolved(pvc="AllowIdle")
    assert (found.source, found.remark) == ("default", "PersistentVolumeClaim says 'AllowIdle', which loosens a reboot only")
    assert resolved(pv="AllowIdle", pvc="Block").source == "PersistentVolumeClaim"


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


def test_a_word_that_is_not_heeded_is_named() -> None:
    found = resolve(None, samples.claim(policy="Block"), class_=None, default=None, intent=Intent.REBOOT, heeded=False)
    assert found.unheeded == "PersistentVolumeClaim says 'Block', which is not heeded in namespace apps (--drain-tenant-policies)"
    heeded = resolve(None, samples.claim(policy="Ignore"), class_=None, default=None, intent=Intent.REBOOT, heeded=False)
    assert heeded.unheeded == ""
