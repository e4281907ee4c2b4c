"""The intended differences between the two programs, by name and with the reason. Any other difference is a failure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hack.parities.compare import ABSENT, Gap, Pair
from hack.parities.driver import OWN_NODE

_REFUSED = "/events/claim Warning ProvisioningFailed"
_BEGUN = "/events/claim Normal Provisioning"
_LABELS = tuple({"csi-node-sidecar.io/node": value} for value in (OWN_NODE, "several"))
_UNDELETED = "/events/volume Warning VolumeFailedDelete"


@dataclass(frozen=True, slots=True)
class Intended:
    """`matches` is as narrow as it can be told: a field of a kind of case, with the values expected there."""

    name: str
    reason: str
    matches: Callable[[Pair, Gap], bool]
    everywhere: bool = False
    """Met in every case that has an event or an affinity, so that it says nothing about a case."""


def intended_for(pair: Pair, gap: Gap) -> Intended | None:
    return next((item for item in TABLE if item.matches(pair, gap)), None)


# --- events -----------------------------------------------------------------------------------------------------------


def _names_the_host(_: Pair, gap: Gap) -> bool:
    return bool(re.fullmatch(r"/events/.*/(host|instance)/0", gap.path)) and (gap.peer, gap.ours) == ("", OWN_NODE)


def _begins_what_it_refuses(pair: Pair, gap: Gap) -> bool:
    """Both refuse, and neither calls the driver."""
    return gap.path == _BEGUN and gap.ours == ABSENT and _both_refuse(pair) and not _called(pair)


def _refuses_in_other_words(pair: Pair, gap: Gap) -> bool:
    """Each says one thing only; what a driver has said is never in it, and must be told alike."""
    said = gap.path == f"{_REFUSED}/message/0" and _both_refuse(pair) and not _called(pair)
    return said and _messages(pair.peer, _REFUSED) == [gap.peer] and _messages(pair.ours, _REFUSED) == [gap.ours]


def _tells_of_an_unusable_volume(pair: Pair, gap: Gap) -> bool:
    """Both have had it deleted: that is among the calls, which are compared."""
    unusable = {"answer-bytes": "less", "answer-source": "none"}
    told = any(pair.case.parameters.get(key) == value for key, value in unusable.items())
    again = gap.path == f"{_REFUSED}/message/1" and gap.peer == ABSENT and "the deletion of volume '" in str(gap.ours)
    return told and (again or (gap.path == f"{_REFUSED}/message/0" and "created volume '" in str(gap.ours)))


def _tells_that_it_is_infeasible(pair: Pair, gap: Gap) -> bool:
    """The driver's own words are at the end of both."""
    words = "rpc error: code = InvalidArgument desc = told to answer create with INVALID_ARGUMENT"
    return gap.path == f"{_REFUSED}/message/0" and str(gap.peer).endswith(words) and str(gap.ours).endswith(f": {words}")


def _says_what_to_do_about_another_volume(pair: Pair, gap: Gap) -> bool:
    """The driver's own words are the whole of the peer's, and the beginning of ours."""
    words = "rpc error: code = AlreadyExists desc = "
    return gap.path == f"{_REFUSED}/message/0" and words in str(gap.peer) and str(gap.ours).startswith(f"{gap.peer}; ")


def _leaves_to_populator(pair: Pair, gap: Gap) -> bool:
    ref = pair.case.spec.get("dataSourceRef", {})
    return ref.get("kind") == "Sheet" and gap.path.startswith(f"{_BEGUN}/") and not _called(pair) and not _both_refuse(pair)


def _tells_of_an_unknown_class(pair: Pair, gap: Gap) -> bool:
    unknown = pair.case.without_class or pair.case.class_.get("provisioner") is not None
    return unknown and not _called(pair) and gap.peer == ABSENT and gap.path == _REFUSED and _is_warning_of_class(gap.ours)


def _keeps_in_other_words(pair: Pair, gap: Gap) -> bool:
    """Neither has asked the driver to delete the volume."""
    untouched = not any("DeleteVolume" in side["calls"] for side in (pair.peer, pair.ours))
    said = gap.path == f"{_UNDELETED}/message/0" and untouched
    return said and _messages(pair.peer, _UNDELETED) == [gap.peer] and _messages(pair.ours, _UNDELETED) == [gap.ours]


# --- what is done -----------------------------------------------------------------------------------------------------


def _order(_: Pair, gap: Gap) -> bool:
    return bool(re.fullmatch(r"/volumes/\w+/spec/nodeAffinity/required/nodeSelectorTerms/\d+/matchExpressions/order/\d+", gap.path))


def _order_of_finalizers(pair: Pair, gap: Gap) -> bool:
    found = re.fullmatch(r"/(\w+)/(\w+)/metadata/finalizers/\d+", gap.path)
    if found is None:
        return False
    one, other = (side[found[1]][found[2]]["metadata"]["finalizers"] for side in (pair.peer, pair.ours))
    return bool(sorted(one) == sorted(other))


def _tries_infeasible_again(pair: Pair, gap: Gap) -> bool:
    return pair.case.name == "create-fails-once-invalid-argument" and _is_of_what_only_ours_make(pair, gap)


def _stores_in_spite_of_an_empty_topology(pair: Pair, gap: Gap) -> bool:
    if pair.case.parameters.get("answer-topology") != "empty":
        return False
    leaked = gap.path == "/left in the driver/0" and gap.ours == ABSENT
    return leaked or _is_silence(gap) or _is_of_what_only_ours_make(pair, gap)


def _deletes_what_has_more_keys(pair: Pair, gap: Gap) -> bool:
    if pair.case.parameters.get("answer-topology") != "more-keys":
        return False
    deleted = gap.path == "/calls/DeleteVolume" and gap.peer == ABSENT
    return deleted or (gap.path in ("/left in the driver/0", "/volumes/claim") and gap.ours == ABSENT)


def _refuses_an_empty_handle(pair: Pair, gap: Gap) -> bool:
    told = gap.path == _REFUSED and gap.peer == ABSENT
    return pair.case.parameters.get("answer-handle") == "empty" and (told or _is_silence(gap))


def _says_itself_who_made_it(_: Pair, gap: Gap) -> bool:
    return gap.path.endswith("/spec/csi/volumeAttributes/storage.kubernetes.io/csiProvisionerIdentity") and gap.peer == "mine"


def _labels_its_volume(_: Pair, gap: Gap) -> bool:
    return bool(re.fullmatch(r"/volumes/\w+/metadata/labels", gap.path)) and gap.peer == ABSENT and gap.ours in _LABELS


def _is_silence(gap: Gap) -> bool:
    """Of the peer, where ours has something to tell."""
    return (gap.path, gap.peer, gap.ours) == ("/came of it", False, True)


def _clones_for_a_beta_class(pair: Pair, gap: Gap) -> bool:
    if pair.case.name != "clone-beta-class":
        return False
    refused = gap.path == _REFUSED and gap.ours == ABSENT and "storageclass cannot be empty" in str(gap.peer)
    protected = gap.path == "/claims/source/metadata/finalizers/1" and str(gap.ours).endswith("/cloning-protection")
    # Sorted by their text, the clone's calls come before its source's.
    called = re.fullmatch(r"/calls/(Create|Delete)Volume/[01](/\w+)?", gap.path) is not None
    return refused or protected or called or _is_of_what_only_ours_make(pair, gap)


def _is_of_what_only_ours_make(pair: Pair, gap: Gap) -> bool:
    """The volume of the claim and all that follows from it, where the peer has none of it."""
    whole = ("/volumes/claim", "/events/claim Normal ProvisioningSucceeded", "/calls/DeleteVolume")
    bound = ("annotations/pv.kubernetes.io/bind-completed", "annotations/pv.kubernetes.io/bound-by-controller")
    of_claim = {f"/claims/claim/{path}" for path in ("spec/volumeName", "status/accessModes", "status/capacity")}
    of_claim |= {f"/claims/claim/metadata/{path}" for path in bound}
    only_ours = gap.peer == ABSENT and (gap.path in whole or gap.path in of_claim)
    return only_ours or (gap.path, gap.peer, gap.ours) == ("/claims/claim/status/phase", "Pending", "Bound")


# --- looks at both sides ----------------------------------------------------------------------------------------------


def _both_refuse(pair: Pair) -> bool:
    return all(_REFUSED.removeprefix("/events/") in side.get("events", {}) for side in (pair.peer, pair.ours))


def _called(pair: Pair) -> bool:
    """Whether either has asked the driver for the claim's volume; a source has one of its own."""
    return any("uid of claim" in call["name"] for side in (pair.peer, pair.ours) for call in side["calls"].get("CreateVolume", []))


def _messages(side: Any, event: str) -> list[str]:
    found: list[str] = side["events"].get(event.removeprefix("/events/"), {}).get("message", [])
    return found


def _is_warning_of_class(told: Any) -> bool:
    return isinstance(told, dict) and all("does not exist, or is not for driver" in message for message in told["message"])


TABLE: Sequence[Intended] = (
    Intended(
        "events name their node",
        "`source.host` and `reportingInstance` say which node speaks; the peer leaves them empty",
        _names_the_host,
        everywhere=True,
    ),
    Intended(
        "volumes are labelled with their node",
        "so that a node can list and watch its own among all of the cluster's",
        _labels_its_volume,
        everywhere=True,
    ),
    Intended(
        "order of affinity expressions",
        "the peer's is random, ours is sorted; it has no meaning, and the expressions themselves are compared",
        _order,
        everywhere=True,
    ),
    Intended(
        "order of finalizers",
        "a set to Kubernetes; which of them a patch puts first is the server's",
        _order_of_finalizers,
    ),
    Intended(
        "no event Provisioning for what is refused",
        "nothing has been begun when a claim is refused before the driver is called",
        _begins_what_it_refuses,
    ),
    Intended(
        "words of a refusal",
        "ours name the object and say what to change; both are Warning ProvisioningFailed, and neither calls the driver",
        _refuses_in_other_words,
    ),
    Intended(
        "words about an unusable volume",
        "ours name the volume and say what has become of it, also when its deletion has failed and is tried again",
        _tells_of_an_unusable_volume,
    ),
    Intended(
        "words before an infeasible answer",
        "one sentence around the driver's own, which is the same",
        _tells_that_it_is_infeasible,
    ),
    Intended(
        "words where the driver has another volume of the claim's name",
        "ours say after the driver's own what it may come from, and what to do",
        _says_what_to_do_about_another_volume,
    ),
    Intended(
        "event about a populator",
        "one event, from the component that all others come from, with the source's name; the peer says first that it provisions",
        _leaves_to_populator,
    ),
    Intended(
        "event about a class that is missing or another driver's",
        "the peer logs it and tells the claim's user nothing",
        _tells_of_an_unknown_class,
    ),
    Intended(
        "words about a volume that is kept",
        "both are Warning VolumeFailedDelete, and neither asks the driver",
        _keeps_in_other_words,
    ),
    Intended(
        "infeasible claims are tried again within --retry-interval-max",
        "which the peer does not honour for them: it waits five minutes whatever the flag says",
        _tries_infeasible_again,
    ),
    Intended(
        "volumes whose topology is empty are stored",
        "the peer writes an affinity without terms, which the API server refuses for ever; the volume stays behind in the driver",
        _stores_in_spite_of_an_empty_topology,
    ),
    Intended(
        "volumes are deleted whose topology has keys that NodeGetInfo does not report",
        "the peer takes a volume that it made itself for another node's, and leaves it behind with its PersistentVolume",
        _deletes_what_has_more_keys,
    ),
    Intended(
        "an answer without a handle is told",
        "the peer tries for ever to store a volume that the API server refuses, and tells the claim's user nothing",
        _refuses_an_empty_handle,
    ),
    Intended(
        "a driver's volume_context does not say which provisioner made a volume",
        "drain decisions and policies trust the identity; the peer lets the driver write over it",
        _says_itself_who_made_it,
    ),
    Intended(
        "clones of claims that name their class by annotation",
        "the peer refuses them, although it provisions such claims",
        _clones_for_a_beta_class,
    ),
)
