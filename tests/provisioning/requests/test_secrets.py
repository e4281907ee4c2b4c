"""Which Secret a class names for which call: templates, defaults, deprecated keys, and everything that is refused."""

import base64
import traceback
from collections.abc import Mapping
from typing import Any

import pytest

from sidecar.model.objects import Volume
from sidecar.provisioning.requests.request import Unfit
from sidecar.provisioning.requests.secrets import SecretRef, SecretRefs, data_of, deletion_secret, expand, secret_refs
from tests.harness import samples
from tests.harness.provisioning.room import (
    DEFAULT_NAME,
    DEFAULT_NAMESPACE,
    KINDS,
    NAME,
    NAMESPACE,
    OLD_NAME,
    OLD_NAMESPACE,
    PREFIX,
    provisioner,
)

DEPRECATED = {
    "provisioner": "csiProvisionerSecret", "controller-publish": "csiControllerPublishSecret",
    "node-stage": "csiNodeStageSecret", "node-publish": "csiNodePublishSecret",
}  # fmt: skip
CLAIM: dict[str, Any] = {"volume_name": "test-testi", "claim_namespace": "fake-ns", "claim_name": "fake-pvc"}
CANARY = "canary-7f3a"


def answer(parameters: Mapping[str, str], *, annotations: Mapping[str, str] | None = None) -> SecretRefs | Unfit:
    return secret_refs(samples.class_(parameters=parameters), **CLAIM, annotations=annotations or {})


def refs(parameters: Mapping[str, str], *, annotations: Mapping[str, str] | None = None) -> SecretRefs:
    found = answer(parameters, annotations=annotations)
    assert isinstance(found, SecretRefs), found
    return found


def unfit(parameters: Mapping[str, str], *, annotations: Mapping[str, str] | None = None) -> str:
    found = answer(parameters, annotations=annotations)
    assert isinstance(found, Unfit), found
    assert found.why.startswith("StorageClass 'fake-class': ")
    return found.why


def test_R15_without_secret_keys_there_are_none() -> None:
    assert refs({"fstype": "xfs", "csiFoo": "bar", f"{PREFIX}fstype": "ext4"}) == SecretRefs()


def test_R16_a_name_and_a_namespace_need_each_other() -> None:
    for key in [NAME, NAMESPACE, OLD_NAME, OLD_NAMESPACE, DEFAULT_NAME, DEFAULT_NAMESPACE]:
        other = NAMESPACE if key.lower().endswith("name") else NAME
        missing = other.replace("provisioner-", "") if key in (DEFAULT_NAME, DEFAULT_NAMESPACE) else other
        assert unfit({key: "x"}).endswith(f"parameter {key} needs {missing} beside it; add that, or remove it")


def test_R16_an_empty_value_is_no_value() -> None:
    for keys in [(NAME, NAMESPACE), (OLD_NAME, OLD_NAMESPACE), (OLD_NAME, NAMESPACE), (DEFAULT_NAME, DEFAULT_NAMESPACE)]:
        for values in [("", "b"), ("a", ""), ("", "")]:
            empty = [key for key, value in zip(keys, values, strict=True) if not value]
            why = unfit(dict(zip(keys, values, strict=True)))
            assert f"parameter {empty[-1]} is empty; give it a value, or remove {keys[1]} and {keys[0]}" in why


def test_R17_two_spellings_of_one_key_are_one_too_many() -> None:
    for half in ["Name", "Namespace"]:
        for kind in DEPRECATED:
            old, new = f"{DEPRECATED[kind]}{half}", f"{PREFIX}{kind}-secret-{half.lower()}"
            other = f"{PREFIX}{kind}-secret-{'namespace' if half == 'Name' else 'name'}"
            assert f"parameters {old} and {new} mean the same; keep {new}" in unfit({old: "a", new: "a", other: "b"})


def test_R17_each_half_may_be_in_its_own_spelling() -> None:
    assert refs({OLD_NAME: "a", NAMESPACE: "b"}) == refs({NAME: "a", OLD_NAMESPACE: "b"}) == SecretRefs(provisioner=SecretRef("b", "a"))


def test_R17_four_kinds_have_a_deprecated_spelling() -> None:
    for kind in DEPRECATED:
        found = refs({f"{DEPRECATED[kind]}Name": "a", f"{DEPRECATED[kind]}Namespace": "b"})
        assert found == SecretRefs(**{kind.replace("-", "_"): SecretRef("b", "a")})


def test_R17_what_was_never_a_spelling_is_the_drivers_business() -> None:
    for stem in ["csiControllerExpandSecret", "csiNodeExpandSecret", "csiControllerModifySecret", "csiSecret"]:
        assert refs({f"{stem}Name": "", f"{stem}Namespace": "${x}"}) == SecretRefs()


def test_R18_every_kind_has_its_own_reference() -> None:
    parameters = {f"{PREFIX}{kind}-secret-name": f"{kind}-name" for kind in KINDS}
    parameters |= {f"{PREFIX}{kind}-secret-namespace": f"{kind}-ns" for kind in KINDS}
    expected = [SecretRef(f"{kind}-ns", f"{kind}-name") for kind in KINDS]
    assert refs(parameters) == SecretRefs(*expected)
    assert [getattr(refs(parameters), kind.replace("-", "_")) for kind in KINDS] == expected


def test_R18_one_kind_alone_leaves_the_others_without() -> None:
    for kind in KINDS:
        found = refs({f"{PREFIX}{kind}-secret-name": "a", f"{PREFIX}{kind}-secret-namespace": "b"})
        assert found == SecretRefs(**{kind.replace("-", "_"): SecretRef("b", "a")})


def test_R19_the_default_stands_in_for_every_kind() -> None:
    assert refs({DEFAULT_NAME: "a", DEFAULT_NAMESPACE: "b"}) == SecretRefs(*(SecretRef("b", "a") for _ in KINDS))


def test_R19_a_kinds_own_keys_come_before_the_default_as_a_whole() -> None:
    default = {DEFAULT_NAME: "a", DEFAULT_NAMESPACE: "b"}
    assert refs(default | provisioner("c", "d")) == SecretRefs(SecretRef("d", "c"), *(SecretRef("b", "a") for _ in KINDS[1:]))
    assert f"parameter {NAME} needs {NAMESPACE}" in unfit(default | {NAME: "c"})


def test_R20_templates() -> None:
    name = "static-${pv.name}-${pvc.namespace}-${pvc.name}-${pvc.annotations['akey']}"
    found = refs(provisioner(name, "static-${pv.name}-${pvc.namespace}"), annotations={"akey": "avalue"})
    assert found.provisioner == SecretRef("static-test-testi-fake-ns", "static-test-testi-fake-ns-fake-pvc-avalue")


def test_R20_what_the_claims_user_chooses_does_not_choose_the_namespace() -> None:
    for token in ["pvc.name", "pvc.annotations['akey']"]:
        why = unfit(provisioner(namespace=f"${{{token}}}"), annotations={"akey": "kube-system"})
        assert f"{NAMESPACE} has unknown tokens ({token!r}); a namespace may use ${{pv.name}} and ${{pvc.namespace}}" in why
        assert "kube-system" not in why


def test_R20_an_annotation_that_the_claim_lacks_is_named() -> None:
    for annotations in ({}, {"other": "x"}):
        why = unfit(provisioner("${pvc.annotations['akey']}"), annotations=annotations)
        assert NAME in why
        assert "akey" in why
        assert "for an annotation that the claim has" in why


def test_R23_an_unknown_token_in_the_default() -> None:
    for key in [DEFAULT_NAME, DEFAULT_NAMESPACE]:
        why = unfit({DEFAULT_NAME: "a", DEFAULT_NAMESPACE: "b"} | {key: "static-${unknown}-${pv.name}-${also unknown}"})
        assert f"parameter {key} has unknown tokens ('also unknown', 'unknown'); a" in why


def test_R25_a_token_without_braces_ends_at_the_dot() -> None:
    assert f"parameter {NAME} has unknown tokens ('pvc'); a name may use ${{pv.name}}," in unfit(provisioner("$pvc.name"))


def test_R25_a_dollar_at_the_end_stays_and_makes_no_name() -> None:
    why = unfit(provisioner("a$"))
    assert f"parameter {NAME} gives 'a$', which cannot be the name of a Secret; use words of lower-case letters" in why


def test_a_namespace_is_a_label() -> None:
    for namespace in ["B", "b.c", "-b", "b-", "b_c", "b\n", "é", "b" * 64, "${}", "kube system"]:
        assert f"parameter {NAMESPACE} gives {'' if namespace == '${}' else namespace!r}" in unfit(provisioner(namespace=namespace))


def test_a_name_is_a_subdomain() -> None:
    for name in ["A", "a..b", ".a", "a.", "a-.b", "a.-b", "a_b", "a\n", "a/b", "..", "²", "a" * 254]:
        assert f"parameter {NAME} gives {name!r}, which cannot be the name" in unfit(provisioner(name))


def test_what_kubernetes_allows_is_allowed() -> None:
    for name, namespace in [("a" * 253, "b" * 63), ("a.b-c.0", "0"), ("a" * 64 + ".b", "b--c")]:
        assert refs(provisioner(name, namespace)).provisioner == SecretRef(namespace, name)


def noted(name: str, namespace: str) -> dict[str, str]:
    stem = "volume.kubernetes.io/provisioner-deletion-secret"
    return {f"{stem}-name": name, f"{stem}-namespace": namespace}


USES_SECRETS = samples.class_(parameters=provisioner("now-${pvc.name}", "${pvc.namespace}"))


def test_D3_empty_notes_say_that_there_is_none() -> None:
    for class_ in [None, USES_SECRETS]:
        assert deletion_secret(samples.volume(annotations=noted("", "")), class_) is None


def test_D4_what_was_noted_at_creation_is_used_whatever_became_of_the_class() -> None:
    for class_ in [None, USES_SECRETS, samples.class_(parameters=provisioner("${x}"))]:
        assert deletion_secret(samples.volume(annotations=noted("then", "there")), class_) == SecretRef("there", "then")


def test_half_a_note_is_none() -> None:
    for notes in [noted("then", ""), noted("", "there")]:
        assert deletion_secret(samples.volume(annotations=notes), USES_SECRETS) is None


def test_D6_without_notes_the_class_says() -> None:
    volume = Volume.of(samples.volume_without_notes())
    assert deletion_secret(volume, USES_SECRETS) == SecretRef("fake-ns", "now-fake-pvc")
    assert deletion_secret(volume, samples.class_(parameters=provisioner("${pv.name}", "${pv.name}"))) == SecretRef(
        "test-testi", "test-testi"
    )
    assert deletion_secret(volume, samples.class_(parameters={OLD_NAME: "a", NAMESPACE: "b"})) == SecretRef("b", "a")
    assert deletion_secret(volume, samples.class_(parameters={DEFAULT_NAME: "a", DEFAULT_NAMESPACE: "b"})) == SecretRef("b", "a")


def test_D6_other_kinds_of_the_class_do_not_matter() -> None:
    class_ = samples.class_(parameters={f"{PREFIX}node-stage-secret-name": "${x}", f"{PREFIX}node-stage-secret-namespace": "b"})
    assert deletion_secret(Volume.of(samples.volume_without_notes()), class_) is None


def test_D6_without_class_or_claim_there_is_none() -> None:
    assert deletion_secret(Volume.of(samples.volume_without_notes()), None) is None
    assert deletion_secret(Volume.of(samples.volume_without_notes(spec={"claimRef": None})), USES_SECRETS) is None


def test_D6_annotations_of_the_claim_are_not_known_at_deletion() -> None:
    found = deletion_secret(Volume.of(samples.volume_without_notes()), samples.class_(parameters=provisioner("${pvc.annotations['akey']}")))
    assert isinstance(found, Unfit)
    assert f"StorageClass 'fake-class': parameter {NAME} has unknown tokens" in found.why
    assert found.why.endswith("${pvc.name} (at deletion the annotations of the claim are not known)")


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def secret(**data: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "ns", "name": "it"}, "data": data}


def test_data_is_text_in_base64() -> None:
    assert data_of(secret(user=encoded(b"me"), password=encoded("gehe\u00efm\n".encode()), none="")) == {
        "user": "me",
        "password": "gehe\u00efm\n",
        "none": "",
    }


def test_what_no_driver_can_take_is_named_by_its_key_and_never_shown() -> None:
    for value in [
        encoded(CANARY.encode() + b"\xff"),
        f"{encoded(CANARY.encode())}!",
        f"{CANARY}=a",
        f"{CANARY}é",
        encoded(CANARY.encode())[:-1],
    ]:
        with pytest.raises(ValueError, match=r"Secret ns/it: what is under the key 'password' is not UTF-8 text in base64") as caught:
            data_of(secret(user=encoded(b"me"), password=value))
        shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
        assert type(caught.value) is ValueError
        assert caught.value.__context__ is None
        assert CANARY not in shown
        assert value not in shown


def test_tokens() -> None:
    for template, text, unknown in [
        ("", "", ()),
        ("$", "$", ()),
        ("a$", "a$", ()),
        ("$.a", "$.a", ()),
        ("$ $é", "$ $é", ()),
        ("$a", "A", ()),
        ("$a_1.b", ".b", ("a_1",)),
        ("$a-b", "A-b", ()),
        ("${a}b", "Ab", ()),
        ("${}b", "b", ()),
        ("${a", "a", ()),
        ("${", "", ()),
        ("${${a}", "", ("${a",)),
        ("${a$a", "aA", ()),
        ("${a}${", "A", ()),
        ("$$a", "a", ("$",)),
        ("$1a$0$2$3$4$5$6$7$8$9b", "ab", tuple("0123456789")),
        ("$*$#$@$!$?$-", "", ("!", "#", "*", "-", "?", "@")),
        ("${*}${**}", "", ("*", "**")),
        ("${ a }", "", (" a ",)),
        ("${a\n}", "", ("a\n",)),
        ("${é}$é", "$é", ("é",)),
        ("}a{$a}", "}a{A}", ()),
        ("$b", "${a}$a", ()),
        ("${c}${c}", "", ("c",)),
    ]:
        assert expand(template, {"a": "A", "b": "${a}$a"}) == (text, unknown)


def test_R20_what_an_annotation_says_is_no_template() -> None:
    why = unfit(provisioner("${pvc.annotations['akey']}"), annotations={"akey": "${pvc.namespace}"})
    assert "gives '${pvc.namespace}' (from" in why
