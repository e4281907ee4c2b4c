"""What a line of the journal may cause. It comes from a file in a folder in which others write too, so it is followed only as far as this
node and the API server confirm it.

What it may name otherwise: any volume of the driver, to be deleted, and any Secret that this sidecar may read, to be given to the driver.
"""

from dataclasses import dataclass, replace

from sidecar.deletion.rules import OnFile
from sidecar.local.here import Here
from sidecar.model.names import is_volume_name
from sidecar.model.objects import Claim, Class, Json
from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.provisioning.requests.request import Unfit
from sidecar.provisioning.requests.secrets import SecretRef, provisioner_secret


@dataclass(frozen=True, slots=True)
class Confirmed:
    record: CreationRecord
    """With the stricter of both reclaim policies, the line's and the class's."""
    secret: SecretRef | None
    """The one that the line names, if the class of the claim names it too."""
    doubt: str = ""
    """Why the Secret that the line names is not used."""


def foreign(here: Here, record: CreationRecord) -> str:
    """Why nothing of the line is followed; empty: it is. A volume that was begun here has a name that is made of the claim's uid, perhaps
    as flags were then; and it was begun on a node of this name."""
    if record.node not in ("", here.node):
        # The PersistentVolume of a node that was renamed says that it lies elsewhere, and yet the data is here.
        return (
            f"it was begun on node {record.node}, and this node is called {here.node}. If the node was renamed, it is here and may be in"
            " use; if the journal was copied here from another node, there is nothing of it here"
        )
    name = here.volume_name(record.uid)
    if record.request.name == name or is_volume_name(record.request.name, record.uid):
        return ""
    return f"a volume for that claim would be called {name}, or with other flags end alike: another name is not looked for"


def on_file(record: CreationRecord) -> OnFile | None:
    """For `deletion.rules`."""
    return OnFile(record.uid, record.request.name) if record.from_file else None


def own(record: CreationRecord, claim: Json | None) -> Json | None:
    """The claim, unless another one has its name by now."""
    return claim if claim is not None and claim["metadata"]["uid"] == record.uid else None


def class_of(record: CreationRecord, claim: Json | None) -> str:
    """The name of the claim's class: as the API server has it, or as the line has it if the claim is gone."""
    return record.class_name if claim is None else Claim.of(claim).class_name


def confirm(here: Here, record: CreationRecord, claim: Json | None, class_: Class | None) -> Confirmed:
    """`claim` is the line's own, `class_` what the API server has under the name that `class_of` gives; None: there is none."""
    if class_ is not None and class_.provisioner != here.driver.name:
        class_ = None
    if class_ is not None and class_.reclaim_policy == "Retain":
        record = replace(record, reclaim_policy="Retain")
    if record.secret is None:
        return Confirmed(record, None)
    doubt = _why_not(record, claim, class_)
    return Confirmed(record, None if doubt else SecretRef(*record.secret), doubt)


def _why_not(record: CreationRecord, claim: Json | None, class_: Class | None) -> str:
    if class_ is None:
        return "the driver has no class of the claim's that could name it"
    # When the claim is gone, its annotations are not known.
    annotations = None if claim is None else claim["metadata"].get("annotations") or {}
    named = provisioner_secret(
        class_,
        volume_name=record.request.name,
        claim_namespace=record.namespace,
        claim_name=record.name,
        annotations=annotations,
    )
    match named:
        case Unfit(why):
            return why
        case SecretRef(namespace, name) if (namespace, name) == record.secret:
            return ""
        case _:
            return f"StorageClass {class_.name!r} does not name it for that claim"
