"""Decides which drain policy a volume has, and where it stands. A wrong word, or two that differ, never make it laxer."""

from collections.abc import Set
from dataclasses import dataclass
from typing import Final

from sidecar.drain.words import Intent, Policy, quoted
from sidecar.model import names
from sidecar.model.objects import Claim, Class, Notes, Volume

CLAIM, CLASS, NAMESPACE = "claim", names.STORAGE_CLASS, "namespace"  # kinds of objects that may state a policy, and have to be read for it

_STRICTNESS: Final = tuple(Policy)
_KEYS: Final = {Intent.REBOOT: names.DRAIN_POLICY_REBOOT, Intent.RETIRE: names.DRAIN_POLICY_RETIRE}
"""The annotation that speaks of one intent. On the same object it outranks the plain one, which speaks of both."""
_BUILT_IN: Final = {Intent.REBOOT: Policy.ALLOW_IDLE, Intent.RETIRE: Policy.BLOCK}
_DEFAULT: Final = "default"


def unread_key(kind: str, name: str) -> str:
    """How an object that could not be read is named. A claim's name is the full one."""
    return f"{kind} {name}"


@dataclass(frozen=True, slots=True)
class Resolved:
    """The policy that holds for one intent."""

    policy: Policy
    source: str  # where it stands: `PersistentVolume`, `PersistentVolumeClaim`, `StorageClass NAME`, `Namespace NAME`, `driver`, `default`
    by_order: Policy  # by the order of the sources alone, wrong words skipped: it differs only where there is a problem
    problem: str = ""  # what is wrong with the words; empty: nothing
    certain: bool = True  # False: an object that might state another policy could not be read
    remark: str = ""  # why the words do not mean what their author may expect; empty: they do

    @property
    def plain(self) -> bool:
        """Nobody can have meant anything else."""
        return self.certain and not self.problem


@dataclass(frozen=True, slots=True)
class _Statement:
    source: str
    text: str
    intent: Intent
    by_name: bool  # it was said of this intent alone

    @property
    def loosens_reboots_only(self) -> bool:
        """`AllowIdle` under the plain key: whoever wants a node rebooted has not said that its data may go."""
        return self.text == Policy.ALLOW_IDLE and self.intent is Intent.RETIRE and not self.by_name

    @property
    def known(self) -> Policy | None:
        """What a word that can be understood counts as."""
        if self.loosens_reboots_only:
            return Policy.BLOCK
        return Policy(self.text) if self.text in _STRICTNESS else None

    @property
    def policy(self) -> Policy:
        """Somebody wanted something special for this volume, so a word that cannot be understood counts as the strictest policy."""
        return self.known or Policy.BLOCK

    def __str__(self) -> str:
        said = f"{self.source} says {quoted(self.text)}" + (f" for {self.intent}" if self.by_name else "")
        return said if self.known else f"{said}, which is not a policy"


def resolve(
    volume: Volume,
    claim: Claim | None,
    *,
    class_: Class | None,
    namespace: Notes = (),
    default: Policy | None,
    intent: Intent,
    unread: Set[str] = frozenset(),
) -> Resolved:
    """The word nearest to the volume wins: PersistentVolume or claim (the stricter one), StorageClass, namespace, then the default."""
    of_volume = _word(names.VOLUME, volume.notes, intent)
    of_claim = _word(names.CLAIM, claim.notes if claim else (), intent)
    of_class = _word(f"StorageClass {class_.name}", class_.notes, intent) if class_ else None
    of_namespace = _word(f"Namespace {volume.claim.namespace}" if volume.claim else "", namespace, intent)
    own = tuple(filter(None, (of_volume, of_claim)))
    shared = tuple(filter(None, (of_class, of_namespace)))
    loosens = default is Policy.ALLOW_IDLE and intent is Intent.RETIRE  # a reboot only, as a default too
    fallback, said_by = (_BUILT_IN[intent], _DEFAULT) if default is None or loosens else (default, "driver")
    by_order = next((word.known for word in (*own, *shared) if word.known), fallback)
    certain = _is_certain(volume, unread, own=bool(own), shared=bool(shared))
    counted = own or shared[:1]
    if not counted:
        return Resolved(fallback, said_by, by_order, certain=certain)
    taken = max(counted, key=lambda word: (_STRICTNESS.index(word.policy), not word.loosens_reboots_only))
    if taken.loosens_reboots_only:
        return Resolved(taken.policy, _DEFAULT, by_order, _problem(counted), certain, f"{taken}, which loosens a reboot only")
    return Resolved(taken.policy, taken.source, by_order, _problem(counted), certain)


def _is_certain(volume: Volume, unread: Set[str], *, own: bool, shared: bool) -> bool:
    """All objects that come before the one that counted have been read, and the claim, which may be stricter than the volume."""
    ref = volume.claim
    if ref and unread_key(CLAIM, ref.full_name) in unread:
        return False
    if own:
        return True
    if unread_key(CLASS, volume.class_name) in unread:
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
    by_name = _KEYS[intent] in said
    text = said.get(_KEYS[intent] if by_name else names.DRAIN_POLICY)
    return None if text is None else _Statement(source, text, intent, by_name)
