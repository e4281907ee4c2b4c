"""Decides which drain policy a volume has, and where it stands. A wrong word, or two that differ, never make it laxer."""

from collections.abc import Set
from dataclasses import dataclass
from typing import Final

from sidecar.drain.facts.snapshot import CLAIM, CLASS, NAMESPACE, unread_key
from sidecar.drain.vocabulary import Intent, Policy
from sidecar.drain.wording import quoted
from sidecar.model import names
from sidecar.model.objects import Claim, Class, Notes, Volume

STRICTNESS: Final = (Policy.IGNORE, Policy.ALLOW_IDLE, Policy.REPROVISION, Policy.MIGRATE, Policy.BLOCK)
"""From the laxest to the strictest."""

_BY_INTENT: Final = {Intent.REBOOT: Policy.ALLOW_IDLE, Intent.RETIRE: Policy.BLOCK}


@dataclass(frozen=True, slots=True)
class Resolved:
    """The policy that holds for one intent."""

    policy: Policy
    source: str
    by_order: Policy
    """The policy by the order of the sources alone, wrong words skipped. It differs from `policy` only where there is a problem."""
    problem: str = ""
    """What is wrong with the words; empty: nothing."""
    certain: bool = True
    """False: an object that might state another policy could not be read."""


@dataclass(frozen=True, slots=True)
class _Statement:
    source: str
    text: str

    @property
    def known(self) -> Policy | None:
        return next((policy for policy in Policy if policy == self.text), None)

    @property
    def policy(self) -> Policy:
        """Somebody wanted something special for this volume, so a word that cannot be understood counts as the strictest policy."""
        return self.known or Policy.BLOCK

    def __str__(self) -> str:
        verdict = "" if self.known else ", which is not a policy"
        return f"{self.source} says {quoted(self.text)}{verdict}"


def resolve(
    volume: Volume | None,
    claim: Claim | None,
    *,
    class_: Class | None,
    namespace: Notes = (),
    default: Policy | None,
    intent: Intent,
    unread: Set[str] = frozenset(),
) -> Resolved:
    """The word nearest to the volume wins: PersistentVolume or claim (the stricter one), StorageClass, namespace, then the default."""
    own = _words((names.VOLUME, _note(volume)), (names.CLAIM, _note(claim)))
    shared = _words(
        (f"StorageClass {class_.name}" if class_ else "", _note(class_)), (f"Namespace {_namespace(volume, claim)}", _said(namespace))
    )
    fallback = default or _BY_INTENT[intent]
    by_order = next((word.known for word in (*own, *shared) if word.known), fallback)
    certain = _is_certain(volume, unread, own=bool(own), shared=bool(shared))
    if not own and not shared:
        return Resolved(fallback, "driver" if default else "default", by_order, certain=certain)
    taken = max(own or shared[:1], key=lambda word: STRICTNESS.index(word.policy))
    return Resolved(taken.policy, taken.source, by_order, _problem(own or shared[:1]), certain)


def strictest(resolved: tuple[Resolved, ...]) -> Resolved | None:
    """The strictest of several, for a pod with several volumes."""
    return max(resolved, key=lambda item: (STRICTNESS.index(item.policy), item.source), default=None)


def _is_certain(volume: Volume | None, unread: Set[str], *, own: bool, shared: bool) -> bool:
    """All objects that come before the one that counted have been read, and the claim, which may be stricter than the volume."""
    ref = volume.claim if volume else None
    if ref and unread_key(CLAIM, f"{ref.namespace}/{ref.name}") in unread:
        return False
    if own:
        return True
    if volume and unread_key(CLASS, volume.class_name) in unread:
        return False
    # The class comes before the namespace, so with a word of the class the namespace makes no difference.
    return shared or ref is None or unread_key(NAMESPACE, ref.namespace) not in unread


def _problem(words: tuple[_Statement, ...]) -> str:
    if len({word.text for word in words}) > 1:
        return f"{' and '.join(map(str, words))}: the stricter one applies"
    return f"{words[0]}: {Policy.BLOCK} applies" if not words[0].known else ""


def _words(*said: tuple[str, str | None]) -> tuple[_Statement, ...]:
    return tuple(_Statement(source, text) for source, text in said if text is not None)


def _note(record: Volume | Claim | Class | None) -> str | None:
    return None if record is None else _said(record.notes)


def _said(notes: Notes) -> str | None:
    return next((text for key, text in notes if key == names.DRAIN_POLICY), None)


def _namespace(volume: Volume | None, claim: Claim | None) -> str:
    if claim:
        return claim.namespace
    return volume.claim.namespace if volume and volume.claim else ""
