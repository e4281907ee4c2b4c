"""Finds which Secret a class names for which CSI call.

It handles names only. The content of a Secret passes through `data_of`, which keeps none of it.
"""

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Final

from sidecar.model import names
from sidecar.model.objects import Class, Json, Volume
from sidecar.provisioning.requests.request import Unfit, secret_parameters

_NAMESPACE, _NAME = "namespace", "name"
_PROVISIONER: Final = "provisioner"
_DEFAULT: Final = ""
"""The kind whose keys count for every other kind for which the class gives no keys."""

# Two patterns instead of one: a single pattern would search the rest of the text for a closing brace at each `${`, and a class full
# of open braces would take quadratic time. So the text is split at the last `}`: before it braces may close, after it none does.
_BARE: Final = r"([*#$@!?0-9-])|([A-Za-z0-9_]+)"
_WHERE_BRACES_CLOSE: Final = re.compile(rf"\$(?:\{{([^}}]*)\}}|{_BARE})")
_WHERE_THEY_DO_NOT: Final = re.compile(rf"\$(?:\{{|{_BARE})")
_LABEL: Final = re.compile(r"(?!-)[a-z0-9-]+(?<!-)")
_LONGEST_LABEL, _LONGEST_SUBDOMAIN = 63, 253


@dataclass(frozen=True, slots=True)
class SecretRef:
    """The namespace and name of a Secret."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class SecretRefs:
    """The Secrets of one claim. Each field is a kind; the parameters of the class spell it with dashes."""

    provisioner: SecretRef | None = None
    controller_publish: SecretRef | None = None
    node_stage: SecretRef | None = None
    node_publish: SecretRef | None = None
    controller_expand: SecretRef | None = None
    node_expand: SecretRef | None = None
    controller_modify: SecretRef | None = None


NO_SECRETS: Final = SecretRefs()


def secret_refs(
    class_: Class, *, volume_name: str, claim_namespace: str, claim_name: str, annotations: Mapping[str, str]
) -> SecretRefs | Unfit:
    """The Secrets of all kinds, or the first mistake in the parameters of one of them."""
    halves = _halves(volume_name, claim_namespace, claim_name, annotations=annotations)
    refs: dict[str, SecretRef | None] = {}
    for field in fields(SecretRefs):
        ref = _ref(class_, field.name.replace("_", "-"), halves)
        if isinstance(ref, Unfit):
            return ref
        refs[field.name] = ref
    return SecretRefs(**refs)


def deletion_secret(volume: Volume, class_: Class | None) -> SecretRef | Unfit | None:
    """The Secret for DeleteVolume: the one noted in the PersistentVolume at creation; without a note, the one that its class names now.

    The note comes first because the class may have been changed or deleted since. Empty notes, or half a note, mean no Secret.
    """
    if volume.deletion_secret is not None:
        return SecretRef(*volume.deletion_secret) if all(volume.deletion_secret) else None
    if class_ is None or volume.claim is None:
        return None
    claim = volume.claim
    return provisioner_secret(class_, volume_name=volume.name, claim_namespace=claim.namespace, claim_name=claim.name, annotations=None)


def provisioner_secret(
    class_: Class, *, volume_name: str, claim_namespace: str, claim_name: str, annotations: Mapping[str, str] | None
) -> SecretRef | Unfit | None:
    """The Secret that the class names for CreateVolume and DeleteVolume. `annotations` is None when the claim is gone."""
    return _ref(class_, _PROVISIONER, _halves(volume_name, claim_namespace, claim_name, annotations=annotations))


def data_of(secret: Json) -> dict[str, str]:
    """The content of a Secret as the driver gets it: decoded text."""
    return {key: _text(secret, key, encoded) for key, encoded in (secret.get("data") or {}).items()}


def expand(template: str, meanings: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """The template with its tokens replaced, and the unknown tokens, sorted.

    The rules are those of Go's os.Expand, because external-provisioner uses it and classes are written for that. `${token}` and
    `$token` are tokens. After a `$`, a digit or one of `*#$@!?-` is a token of one character. `${}` and a `${` without a closing
    brace are dropped; any other `$` stays. The value of a token is not expanded again: an annotation is data, not a template.
    """
    unknown: set[str] = set()

    def meaning(found: re.Match[str]) -> str:
        token = found[found.lastindex] if found.lastindex else ""
        if not token:
            return ""
        if token not in meanings:
            unknown.add(token)
        return meanings.get(token, "")

    head, brace, tail = template.rpartition("}")
    text = _WHERE_BRACES_CLOSE.sub(meaning, head + brace) + _WHERE_THEY_DO_NOT.sub(meaning, tail)
    return text, tuple(sorted(unknown))


@dataclass(frozen=True, slots=True)
class _Half:
    """The rules of one half of a reference, its namespace or its name: which tokens the template may use, and what the result must be."""

    meanings: Mapping[str, str]
    offer: str
    fits: Callable[[str], bool]
    rule: str


def _halves(volume_name: str, claim_namespace: str, claim_name: str, *, annotations: Mapping[str, str] | None) -> Mapping[str, _Half]:
    """The rules of both halves, by part. `annotations` is None at deletion, when the claim is gone and its annotations are not known.

    The user chooses the claim's name and annotations. So these may choose a Secret, but not the namespace that it is read from:
    otherwise a user could reach the Secrets of other namespaces.
    """
    trusted = {"pv.name": volume_name, "pvc.namespace": claim_namespace}
    noted = {f"pvc.annotations['{key}']": value for key, value in (annotations or {}).items()}
    about_annotations = (
        " (at deletion the annotations of the claim are not known)"
        if annotations is None
        else " and, for an annotation that the claim has, ${pvc.annotations['KEY']}"
    )
    return {
        _NAMESPACE: _Half(
            trusted,
            "${pv.name} and ${pvc.namespace}",
            is_label,
            f"at most {_LONGEST_LABEL} lower-case letters, digits and inner dashes",
        ),
        _NAME: _Half(
            trusted | {"pvc.name": claim_name} | noted,
            "${pv.name}, ${pvc.namespace}, ${pvc.name}" + about_annotations,
            is_subdomain,
            f"words of lower-case letters, digits and inner dashes, joined by dots, at most {_LONGEST_SUBDOMAIN} characters in all",
        ),
    }


def _ref(class_: Class, kind: str, halves: Mapping[str, _Half]) -> SecretRef | Unfit | None:
    keys = _keys(class_, kind)
    # The default replaces a kind as a whole: half of a kind's own keys is a mistake and is not completed from the default.
    if keys is None:
        keys = _keys(class_, _DEFAULT)
    if keys is None or isinstance(keys, Unfit):
        return keys
    resolved: dict[str, str] = {}
    for part, key in keys.items():
        text = _resolve(class_, key, part, halves[part])
        if isinstance(text, Unfit):
            return text
        resolved[part] = text
    return SecretRef(resolved[_NAMESPACE], resolved[_NAME])


def _keys(class_: Class, kind: str) -> Mapping[str, str] | Unfit | None:
    """The key under which the class gives each half of this kind's reference; None when it gives neither half."""
    known = secret_parameters(class_)
    given = {part: [key for key in _spellings(kind, part) if key in known] for part in (_NAMESPACE, _NAME)}
    if not any(given.values()):
        return None
    for keys in given.values():
        if len(keys) > 1:
            return _unfit(class_, f"parameters {' and '.join(keys)} mean the same; keep {keys[-1]}")
    for part, other in ((_NAMESPACE, _NAME), (_NAME, _NAMESPACE)):
        if not given[part]:
            missing = _spellings(kind, part)[-1]
            return _unfit(class_, f"parameter {given[other][0]} needs {missing} beside it; add that, or remove it")
    both = {part: key for part, (key,) in given.items()}
    for key in both.values():
        if not class_.parameters[key]:
            return _unfit(class_, f"parameter {key} is empty; give it a value, or remove {' and '.join(both.values())}")
    return both


def _spellings(kind: str, part: str) -> tuple[str, str]:
    """The deprecated key and the present one. Not every kind has a deprecated key: `request` holds the list of keys that exist."""
    camel = "".join(word.capitalize() for word in kind.split("-"))
    return f"csi{camel}Secret{part.capitalize()}", f"{names.RESERVED_PARAMETER_PREFIX}{kind and f'{kind}-'}secret-{part}"


def _resolve(class_: Class, key: str, part: str, half: _Half) -> str | Unfit:
    template = class_.parameters[key]
    text, unknown = expand(template, half.meanings)
    if unknown:
        tokens = ", ".join(repr(token) for token in unknown)
        return _unfit(class_, f"parameter {key} has unknown tokens ({tokens}); a {part} may use {half.offer}")
    if not half.fits(text):
        origin = "" if text == template else f" (from {template!r})"
        return _unfit(class_, f"parameter {key} gives {text!r}{origin}, which cannot be the {part} of a Secret; use {half.rule}")
    return text


def _unfit(class_: Class, why: str) -> Unfit:
    return Unfit(f"StorageClass {class_.name!r}: {why}")


def is_label(text: str) -> bool:
    """Whether a namespace can be called so."""
    return len(text) <= _LONGEST_LABEL and _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Whether an object can be called so. Kubernetes limits only the whole length of a subdomain, so a label in it may be longer than one
    that stands alone."""
    return len(text) <= _LONGEST_SUBDOMAIN and all(_LABEL.fullmatch(label) for label in text.split("."))


def _text(secret: Json, key: str, encoded: str | None) -> str:
    text = _decoded(encoded or "")
    if text is None:
        # Raised here, outside of the `except`: the exceptions of the decoders carry the value, and a Secret must never reach a log.
        meta = secret.get("metadata") or {}
        where = f"{meta.get('namespace', '')}/{meta.get('name', '')}"
        raise ValueError(f"Secret {where}: what is under the key {key!r} is not UTF-8 text in base64, and a driver takes only text")
    return text


def _decoded(encoded: str) -> str | None:
    try:
        return base64.b64decode(encoded, validate=True).decode()
    except ValueError:
        return None
