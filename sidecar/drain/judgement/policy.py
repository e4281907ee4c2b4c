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

KEYS: Final = {Intent.REBOOT: names.DRAIN_POLICY_REBOOT, Intent.RETIRE: names.DRAIN_POLICY_RETIRE}
"""The annotation that speaks of one intent. On the same object it outranks the plain one, which speaks of both."""

_BUILT_IN: Final = {Intent.REBOOT: Policy.ALLOW_IDLE, Intent.RETIRE: Policy.BLOCK}
_BY_WORD: Final = {policy.value: policy for policy in Policy}


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
    remark: str = ""
    """Why the words do not mean what their author may expect; empty: they do."""
    unheeded: str = ""
    """Whose word did not count, because what tenants of its namespace say is bounded; empty: nobody's."""
    word_of: str = ""
    """Whose word it is, be it that it means no more than the default; empty: nobody's."""


@dataclass(frozen=True, slots=True)
class _Statement:
    source: str
    text: str
    intent: Intent
    by_name: bool
    """It was said of this intent alone."""

    @property
    def known(self) -> Policy | None:
        """What a word that can be understood counts as."""
        return Policy.BLOCK if self.loosens_reboots_only else _BY_WORD.get(self.text)

    @property
    def loosens_reboots_only(self) -> bool:
        """`AllowIdle` under the plain key: whoever wants a node rebooted has not said that its data may go."""
        return self.text == Policy.ALLOW_IDLE and self.intent is Intent.RETIRE and not self.by_name

    @property
    def policy(self) -> Policy:
        """Somebody wanted something special for this volume, so a word that cannot be understood counts as the strictest policy."""
        return self.known or Policy.BLOCK

    @property
    def is_bounded(self) -> bool:
        """In a namespace whose tenants may not hold up nodes it does not count. To have data moved or given up they may say anywhere."""
        if self.intent is Intent.REBOOT:
            return STRICTNESS.index(self.policy) > STRICTNESS.index(_BUILT_IN[Intent.REBOOT])
        return self.policy is Policy.BLOCK and not self.loosens_reboots_only

    def tightens(self, other: "_Statement | None") -> bool:
        """Whether it keeps a node from being retired where those who make volumes and classes have said something laxer."""
        return other is not None and self.intent is Intent.RETIRE and STRICTNESS.index(self.policy) > STRICTNESS.index(other.policy)

    def __str__(self) -> str:
        said = f"{self.source} says {quoted(self.text)}" + (f" for {self.intent}" if self.by_name else "")
        return said if self.known else f"{said}, which is not a policy"


def resolve(
    volume: Volume | None,
    claim: Claim | None,
    *,
    class_: Class | None,
    namespace: Notes = (),
    default: Policy | None,
    intent: Intent,
    heeded: bool = True,
    unread: Set[str] = frozenset(),
) -> Resolved:
    """The word nearest to the volume wins: PersistentVolume or claim (the stricter one), StorageClass, namespace, then the default.

    `namespace` are the notes of the claim's namespace. `heeded`: what it and the claim say counts, even if it holds up the node.
    """
    of_volume = _word(names.VOLUME, volume.notes if volume else (), intent)
    of_claim = _word(names.CLAIM, claim.notes if claim else (), intent)
    of_class = _word(f"StorageClass {class_.name}", class_.notes, intent) if class_ else None
    of_namespace = _word(f"Namespace {_namespace(volume, claim)}", namespace, intent)
    above = of_volume or of_class
    unheeded = tuple(word for word in (of_claim, of_namespace) if word and not heeded and (word.is_bounded or word.tightens(above)))
    own = tuple(word for word in (of_volume, of_claim) if word and word not in unheeded)
    shared = tuple(word for word in (of_class, of_namespace) if word and word not in unheeded)
    fallback, said_by = _fallback(default, intent, at_least=bool(unheeded))
    by_order = next((word.known for word in (*own, *shared) if word.known), fallback)
    certain = _is_certain(volume, unread, own=bool(own), shared=bool(shared))
    dropped = f"{unheeded[0]}, which is not heeded in namespace {_namespace(volume, claim)} (--drain-tenant-policies)" if unheeded else ""
    counted = own or shared[:1]
    if not counted:
        return Resolved(fallback, said_by, by_order, certain=certain, unheeded=dropped)
    taken = max(counted, key=lambda word: (STRICTNESS.index(word.policy), not word.loosens_reboots_only))
    if taken.loosens_reboots_only:
        remark = f"{taken}, which loosens a reboot only"
        return Resolved(taken.policy, _DEFAULT, by_order, _problem(counted), certain, remark, dropped, taken.source)
    return Resolved(taken.policy, taken.source, by_order, _problem(counted), certain, unheeded=dropped, word_of=taken.source)


def strictest(resolved: tuple[Resolved, ...]) -> Resolved | None:
    """The strictest of several, for a pod with several volumes."""
    return max(resolved, key=lambda item: (STRICTNESS.index(item.policy), item.source), default=None)


_DEFAULT: Final = "default"


def _fallback(default: Policy | None, intent: Intent, *, at_least: bool) -> tuple[Policy, str]:
    """What counts where nobody says anything. `at_least`: somebody did, in vain, so it is not laxer than without a driver's default."""
    built_in = _BUILT_IN[intent]
    if default is None or (default is Policy.ALLOW_IDLE and intent is Intent.RETIRE):
        return built_in, _DEFAULT
    laxer = STRICTNESS.index(default) < STRICTNESS.index(built_in)
    return (built_in, _DEFAULT) if at_least and laxer else (default, "driver")


def _is_certain(volume: Volume | None, unread: Set[str], *, own: bool, shared: bool) -> bool:
    """All objects that come before the one that counted have been read, and the claim, which may be stricter than the volume."""
    ref = volume.claim if volume else None
    if ref and unread_key(CLAIM, ref.full_name) in unread:
        return False
    if own:
        return True
    if volume and unread_key(CLASS, volume.class_name) in unread:
        return False
    # The class comes before the namespace, so with a word of the class the namespace makes no difference.
    return shared or ref is None or unread_key(NAMESPACE, ref.namespace) not in unread


def _problem(words: tuple[_Statement, ...]) -> str:
    if len({(word.text, word.policy) for word in words}) > 1:
        return f"{' and '.join(map(str, words))}: the stricter one applies"
    return f"{words[0]}: {Policy.BLOCK} applies" if not words[0].known else ""


def _word(source: str, notes: Notes, intent: Intent) -> _Statement | None:
    """What an object says of an intent: by name, or of both."""
    said = dict(notes)
    by_name = KEYS[intent] in said
    text = said.get(KEYS[intent] if by_name else names.DRAIN_POLICY)
    return None if text is None else _Statement(source, text, intent, by_name)


def _namespace(volume: Volume | None, claim: Claim | None) -> str:
    if claim:
        return claim.namespace
    return volume.claim.namespace if volume and volume.claim else ""
