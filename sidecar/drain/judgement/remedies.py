"""What to do about a blocker: the remedy of its reason, said of the object on which it helps."""

from typing import Final

from sidecar.drain.vocabulary import MEANING, Reason
from sidecar.model import names

_THE_VOLUME: Final = f"the {names.VOLUME}"


def remedy_of(reason: Reason, *, kind: str, said_by: str = "") -> str:
    """`kind` is that of the blocking object. `said_by`: whose word the policy is.

    A volume without a claim has nothing else to annotate, and of two words on volume and claim the stricter one counts: where that is the
    PersistentVolume's, a word on the claim changes nothing.
    """
    remedy = MEANING[reason].remedy
    if kind == names.VOLUME:
        return remedy.replace("the claim", _THE_VOLUME)
    if said_by == names.VOLUME:
        return remedy.replace("annotate the claim", f"annotate {_THE_VOLUME}").replace("of the claim", f"of {_THE_VOLUME}")
    return remedy
