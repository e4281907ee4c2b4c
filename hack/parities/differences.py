"""The intended differences between the two programs, by name and with the reason. Any other difference is a failure, and told as one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hack.parities.compare import ABSENT, Gap, Pair
from hack.parities.driver import OWN_NODE

_REFUSED, _BEGUN, _UNDELETED = "claim Warning ProvisioningFailed", "claim Normal Provisioning", "volume Warning VolumeFailedDelete"
_LABELS = tuple({"csi-node-sidecar.io/node": value} for value in (OWN_NODE, "several"))
_INFEASIBLE = "rpc error: code = InvalidArgument desc = told to answer create with INVALID_ARGUMENT"
# What the peer has none of where only ours make the volume of a claim.
_ONLY_OURS = (
    r"/volumes/claim|/events/claim Normal ProvisioningSucceeded|/calls/DeleteVolume|"
    r"/claims/claim/(spec/volumeName|status/(accessModes|capacity)|metadata/annotations/pv.kubernetes.io/(bind-completed|bound-by-controller))"
)


@dataclass(frozen=True, slots=True)
class Intended:
    """As narrow as it can be told: fields, by an expression for their whole path, of a kind of case, with the values expected there."""

    name: str
    reason: str
    path: str
    when: Callable[[Pair, Gap], bool]
    everywhere: bool = False
    """Met in every case that has an event or an affinity, so that it says nothing about a case."""

    def matches(self, pair: Pair, gap: Gap) -> bool:
        return re.fullmatch(self.path, gap.path) is not None and self.when(pair, gap)


# --- looks at both sides ----------------------------------------------------------------------------------------------


def _refused(pair: Pair) -> bool:
    """By both, without a call to the driver for the claim's volume; a source has one of its own."""
    return all(_REFUSED in side.get("events", {}) for side in (pair.peer, pair.ours)) and not _called(pair)


def _called(pair: Pair) -> bool:
    return any("uid of claim" in call["name"] for side in (pair.peer, pair.ours) for call in side["calls"].get("CreateVolume", []))


def _only_words(pair: Pair, gap: Gap, event: str) -> bool:
    """Each says one thing only; what a driver has said is never in it, and must be told alike."""
    said = (side["events"].get(event, {}).get("message", []) for side in (pair.peer, pair.ours))
    return [*said] == [[gap.peer], [gap.ours]]


def _answers(pair: Pair, **answer: str) -> bool:
    return any(pair.case.parameters.get(f"answer-{key}") == value for key, value in answer.items())


def _only_ours_make_it(gap: Gap) -> bool:
    """The volume of the claim and all that follows from it, or what ours have to tell where the peer is silent."""
    follows = gap.peer == ABSENT and re.fullmatch(_ONLY_OURS, gap.path) is not None
    bound = (gap.path, gap.peer, gap.ours) == ("/claims/claim/status/phase", "Pending", "Bound")
    return follows or bound


def _is_silence(gap: Gap) -> bool:
    return (gap.path, gap.peer, gap.ours) == ("/came of it", False, True)


def _same_finalizers(pair: Pair, gap: Gap) -> bool:
    kind, role = gap.path.split("/")[1:3]
    one, other = (side[kind][role]["metadata"]["finalizers"] for side in (pair.peer, pair.ours))
    return bool(sorted(one) == sorted(other))


def _tells_of_the_class(told: Any) -> bool:
    return isinstance(told, dict) and all("does not exist, or is not for driver" in message for message in told["message"])


def _unusable(gap: Gap) -> bool:
    """Both have had the volume deleted: that is among the calls, which are compared."""
    told = any(words in str(gap.ours) for words in ("created volume '", "the deletion of volume '"))
    return told and (gap.path.endswith("/0") or gap.peer == ABSENT)


def _clone_of_beta_class(gap: Gap) -> bool:
    refused = gap.path == f"/events/{_REFUSED}" and gap.ours == ABSENT and "storageclass cannot be empty" in str(gap.peer)
    protected = gap.path == "/claims/source/metadata/finalizers/1" and str(gap.ours).endswith("/cloning-protection")
    # Sorted by their text, the clone's calls come before its source's.
    called = re.fullmatch(r"/calls/(Create|Delete)Volume/[01](/\w+)?", gap.path) is not None
    return refused or protected or called or _only_ours_make_it(gap)


TABLE: Sequence[Intended] = (
    Intended(
        "events name their node",
        "`source.host` and `reportingInstance` say which node speaks; the peer leaves them empty",
        r"/events/.*/(host|instance)/0",
        lambda _, gap: (gap.peer, gap.ours) == ("", OWN_NODE),
        everywhere=True,
    ),
    Intended(
        "volumes are labelled with their node",
        "so that a node can list and watch its own among all of the cluster's",
        r"/volumes/\w+/metadata/labels",
        lambda _, gap: gap.peer == ABSENT and gap.ours in _LABELS,
        everywhere=True,
    ),
    Intended(
        "order of affinity expressions",
        "the peer's is random, ours is sorted; it has no meaning, and the expressions themselves are compared",
        r"/volumes/\w+/spec/nodeAffinity/required/nodeSelectorTerms/\d+/matchExpressions/order/\d+",
        lambda *_: True,
        everywhere=True,
    ),
    Intended(
        "order of finalizers",
        "a set to Kubernetes; which of them a patch puts first is the server's",
        r"/\w+/\w+/metadata/finalizers/\d+",
        _same_finalizers,
    ),
    Intended(
        "no event Provisioning for what is refused",
        "nothing has been begun when a claim is refused before the driver is called",
        f"/events/{_BEGUN}",
        lambda pair, gap: gap.ours == ABSENT and _refused(pair),
    ),
    Intended(
        "words of a refusal",
        "ours name the object and say what to change; both are Warning ProvisioningFailed, and neither calls the driver",
        f"/events/{_REFUSED}/message/0",
        lambda pair, gap: _refused(pair) and _only_words(pair, gap, _REFUSED),
    ),
    Intended(
        "words about an unusable volume",
        "ours name the volume and say what has become of it, also when its deletion has failed and is tried again",
        f"/events/{_REFUSED}/message/[01]",
        lambda pair, gap: _answers(pair, bytes="less", source="none") and _unusable(gap),
    ),
    Intended(
        "volumes that nobody can use are deleted together",
        "each deletion lists all PersistentVolumes, so ten go at once and the others every five minutes, also when their claims are gone",
        "/left in the driver/0",
        lambda pair, gap: _answers(pair, bytes="less", source="none") and gap.peer == ABSENT,
    ),
    Intended(
        "words before an infeasible answer",
        "one sentence around the driver's own, which is the same",
        f"/events/{_REFUSED}/message/0",
        lambda _, gap: str(gap.peer).endswith(_INFEASIBLE) and str(gap.ours).endswith(f": {_INFEASIBLE}"),
    ),
    Intended(
        "words where the driver has another volume of the claim's name",
        "ours say after the driver's own what it may come from, and what to do",
        f"/events/{_REFUSED}/message/0",
        lambda _, gap: "rpc error: code = AlreadyExists desc = " in str(gap.peer) and str(gap.ours).startswith(f"{gap.peer}; "),
    ),
    Intended(
        "event about a populator",
        "one event, from the component that all others come from, with the source's name; the peer says first that it provisions",
        f"/events/{_BEGUN}/.*",
        lambda pair, _: pair.case.spec.get("dataSourceRef", {}).get("kind") == "Sheet" and not _called(pair) and not _refused(pair),
    ),
    Intended(
        "event about a class that is missing or another driver's",
        "the peer logs it and tells the claim's user nothing",
        f"/events/{_REFUSED}",
        lambda pair, gap: (
            (pair.case.without_class or "provisioner" in pair.case.class_)
            and not _called(pair)
            and gap.peer == ABSENT
            and _tells_of_the_class(gap.ours)
        ),
    ),
    Intended(
        "words about a volume that is kept",
        "both are Warning VolumeFailedDelete, and neither asks the driver",
        f"/events/{_UNDELETED}/message/0",
        lambda pair, gap: (
            not any("DeleteVolume" in side["calls"] for side in (pair.peer, pair.ours)) and _only_words(pair, gap, _UNDELETED)
        ),
    ),
    Intended(
        "infeasible claims are tried again within --retry-interval-max",
        "which the peer does not honour for them: it waits five minutes whatever the flag says",
        ".*",
        lambda pair, gap: pair.case.name == "create-fails-once-invalid-argument" and _only_ours_make_it(gap),
    ),
    Intended(
        "volumes whose topology is empty are stored",
        "the peer writes an affinity without terms, which the API server refuses for ever; the volume stays behind in the driver",
        ".*",
        lambda pair, gap: (
            _answers(pair, topology="empty")
            and ((gap.path == "/left in the driver/0" and gap.ours == ABSENT) or _is_silence(gap) or _only_ours_make_it(gap))
        ),
    ),
    Intended(
        "volumes are deleted whose topology has keys that NodeGetInfo does not report",
        "the peer takes a volume that it made itself for another node's, and leaves it behind with its PersistentVolume",
        "/calls/DeleteVolume|/left in the driver/0|/volumes/claim",
        lambda pair, gap: _answers(pair, topology="more-keys") and (gap.peer if gap.path.startswith("/calls") else gap.ours) == ABSENT,
    ),
    Intended(
        "an answer without a handle is told",
        "the peer tries for ever to store a volume that the API server refuses, and tells the claim's user nothing",
        f"/events/{_REFUSED}|/came of it",
        lambda pair, gap: _answers(pair, handle="empty") and (gap.peer == ABSENT or _is_silence(gap)),
    ),
    Intended(
        "a driver's volume_context does not say which provisioner made a volume",
        "drain decisions and policies trust the identity; the peer lets the driver write over it",
        ".*/spec/csi/volumeAttributes/storage.kubernetes.io/csiProvisionerIdentity",
        lambda _, gap: gap.peer == "mine",
    ),
    Intended(
        "clones of claims that name their class by annotation",
        "the peer refuses them, although it provisions such claims",
        ".*",
        lambda pair, gap: pair.case.name == "clone-beta-class" and _clone_of_beta_class(gap),
    ),
)


# --- the comparison as a table ---------------------------------------------------------------------------------------

_LONGEST, _MOST_SHOWN = 700, 3


@dataclass(slots=True)
class Verdict:
    cases: set[str] = field(default_factory=set)
    differing: set[str] = field(default_factory=set)
    """Cases with at least one intended difference that is not met everywhere."""
    explained: dict[str, list[Gap]] = field(default_factory=dict)
    unexplained: list[Gap] = field(default_factory=list)


def judge(pairs: Iterable[Pair]) -> Verdict:
    verdict = Verdict()
    for pair in pairs:
        verdict.cases.add(pair.case.id)
        for gap in pair.gaps():
            found = next((item for item in TABLE if item.matches(pair, gap)), None)
            if found is None:
                verdict.unexplained.append(gap)
            else:
                verdict.explained.setdefault(found.name, []).append(gap)
                verdict.differing |= set() if found.everywhere else {gap.case}
    return verdict


def table(verdict: Verdict) -> str:
    broken = {gap.case for gap in verdict.unexplained}
    everywhere = " and ".join(f"“{item.name}”" for item in TABLE if item.everywhere)
    lines = ["| | cases |", "|---|--:|", f"| compared | {len(verdict.cases)} |"]
    lines += [f"| equal, but for {everywhere} | {len(verdict.cases - verdict.differing - broken)} |"]
    lines += [f"| with other intended differences only | {len(verdict.differing - broken)} |"]
    lines += [f"| with differences that nobody has explained | {len(broken)} |"]
    lines += ["", "| intended difference | cases | fields | reason |", "|---|--:|--:|---|"]
    for item in TABLE:
        if gaps := verdict.explained.get(item.name, []):
            lines.append(f"| {item.name} | {len({gap.case for gap in gaps})} | {len(gaps)} | {item.reason} |")
    return "\n".join([*lines, *_complaints(verdict)])


def _complaints(verdict: Verdict) -> Iterator[str]:
    """One paragraph for each field, with the names of the cases in which it differs, and the first of them in full."""
    by_field: dict[tuple[str, str], list[Gap]] = {}
    for gap in verdict.unexplained:
        by_field.setdefault((gap.moment, gap.path), []).append(gap)
    for (moment, path), gaps in sorted(by_field.items(), key=lambda item: -len(item[1])):
        yield f"\nUnexplained: {path}, {moment}, in {len(gaps)} cases: {' '.join(gap.case for gap in gaps)}"
        yield from (f"    {gap.case}\n      peer: {_short(gap.peer)}\n      ours: {_short(gap.ours)}" for gap in gaps[:_MOST_SHOWN])


def _short(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:_LONGEST]
