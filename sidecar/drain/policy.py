"""Which policy a volume has and who said so. A word that is no policy, or two that differ, never make it laxer."""

from collections.abc import Set
from dataclasses import dataclass
from typing import Final

from sidecar.drain.words import Intent, Policy
from sidecar.model import names
from sidecar.model.objects import Claim, Class, Volume

STRICTNESS: Final = (Policy.IGNORE, Policy.ALLOW_IDLE, Policy.REPROVISION, Policy.MIGRATE, Policy.BLOCK)
"""The laxest first."""

CLAIM, CLASS, NAMESPACE = "claim", "StorageClass", "namespace"
"""Kinds of sources that have to be asked for."""

_BY_INTENT: Final = {Intent.REBOOT: Policy.ALLOW_IDLE, Intent.RETIRE: Policy.BLOCK}
# An annotation may have 256 KiB.
_LONGEST: Final = 40


@dataclass(frozen=True, slots=True)
class Resolved:
    """The policy that holds for one intent."""

    policy: Policy
    source: str
    by_order: Policy
    """What the order of the sources alone gives, words that are no policy passed over. Another one only where there is a problem."""
    problem: str = ""
    """What is wrong with what was said about it."""
    certain: bool = True
    """False: what might say another one could not be read."""


@dataclass(frozen=True, slots=True)
class _Word:
    source: str
    text: str

    @property
    def known(self) -> Policy | None:
        return next((policy for policy in Policy if policy == self.text), None)

    @property
    def policy(self) -> Policy:
        """Somebody wanted something: what cannot be understood is taken as the strictest."""
        return self.known or Policy.BLOCK

    def __str__(self) -> str:
        verdict = "" if self.known else ", which is no policy"
        return f"{self.source} says {quoted(self.text)}{verdict}"


def resolve(
    volume: Volume | None,
    claim: Claim | None,
    *,
    class_: Class | None,
    namespace_word: str | None,
    default: Policy | None,
    intent: Intent,
    unread: Set[str] = frozenset(),
) -> Resolved:
    """The nearest to the volume wins; if volume and claim differ, the stricter of the two."""
    own = _words(("PersistentVolume", _note(volume)), ("PersistentVolumeClaim", _note(claim)))
    shared = _words(
        (f"StorageClass {class_.name}" if class_ else "", _note(class_)), (f"Namespace {_namespace(volume, claim)}", namespace_word)
    )
    fallback = default or _BY_INTENT[intent]
    by_order = next((word.known for word in (*own, *shared) if word.known), fallback)
    certain = _is_certain(volume, unread, own=bool(own), shared=bool(shared))
    if not own and not shared:
        return Resolved(fallback, "driver" if default else "default", by_order, certain=certain)
    taken = max(own or shared[:1], key=lambda word: STRICTNESS.index(word.policy))
    return Resolved(taken.policy, taken.source, by_order, _problem(own or shared[:1]), certain)


def called(kind: str, name: str) -> str:
    """A source of policies, where it is said that it could not be read. A claim's name is the full one."""
    return f"{kind} {name}"


def quoted(text: str) -> str:
    """What somebody wrote on an object, for a sentence about it."""
    return repr(text[:_LONGEST])


def strictest(resolved: tuple[Resolved, ...]) -> Resolved | None:
    """Of several, for what has several volumes."""
    return max(resolved, key=lambda item: (STRICTNESS.index(item.policy), item.source), default=None)


def _is_certain(volume: Volume | None, unread: Set[str], *, own: bool, shared: bool) -> bool:
    """All that comes before what was taken has been read, and the claim, which may be stricter than the volume."""
    ref = volume.claim if volume else None
    if ref and called(CLAIM, f"{ref.namespace}/{ref.name}") in unread:
        return False
    if own:
        return True
    if volume and called(CLASS, volume.class_name) in unread:
        return False
    # A namespace that was not read has said nothing, so a word is the class's.
    return shared or ref is None or called(NAMESPACE, ref.namespace) not in unread


def _problem(words: tuple[_Word, ...]) -> str:
    if len({word.text for word in words}) > 1:
        return f"{' and '.join(map(str, words))}: the stricter is taken"
    return f"{words[0]}: {Policy.BLOCK} is taken" if not words[0].known else ""


def _words(*said: tuple[str, str | None]) -> tuple[_Word, ...]:
    return tuple(_Word(source, text) for source, text in said if text is not None)


def _note(record: Volume | Claim | Class | None) -> str | None:
    return None if record is None else next((text for key, text in record.notes if key == names.DRAIN_POLICY), None)


def _namespace(volume: Volume | None, claim: Claim | None) -> str:
    if claim:
        return claim.namespace
    return volume.claim.namespace if volume and volume.claim else ""
