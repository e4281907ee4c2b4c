"""Asks the API server how far a line of the journal may be followed, and tells what it does not confirm. The rule: `confirmation`."""

import logging
from collections.abc import Callable

from sidecar.kube.api import CLAIMS, CLASSES, KubeApi, find
from sidecar.local.here import Here
from sidecar.model.objects import Class
from sidecar.provisioning.creations.confirmation import Confirmed, class_of, confirm, foreign, own
from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.provisioning.creations.journal_lines import Damage
from sidecar.provisioning.requests.secrets import SecretRef

log = logging.getLogger(__name__)


class Confirming:
    """What this process began itself needs no confirmation: the class may have changed since, or be gone."""

    def __init__(self, *, here: Callable[[], Here], kube: KubeApi, on_damage: Callable[[str, int], None]) -> None:
        self._here = here
        self._kube = kube
        self._on_damage = on_damage
        self._told: set[str] = set()
        """The claims of which it was told that their Secret is not used."""

    def foreign(self, record: CreationRecord) -> str:
        """Why nothing of it is followed; empty: it is."""
        return foreign(self._here(), record) if record.from_file else ""

    async def ask(self, record: CreationRecord) -> Confirmed:
        """Raises ApiError."""
        if not record.from_file:
            return Confirmed(record, SecretRef(*record.secret) if record.secret else None)
        claim = own(record, await find(self._kube, CLAIMS, record.name, namespace=record.namespace))
        found = await find(self._kube, CLASSES, class_of(record, claim))
        return confirm(self._here(), record, claim, Class.of(found) if found else None)

    def tell(self, confirmed: Confirmed) -> None:
        """Once for each claim: what is not over is asked again and again."""
        record = confirmed.record
        if not confirmed.doubt or record.uid in self._told:
            return
        self._told.add(record.uid)
        self._on_damage(Damage.UNCONFIRMED.value, 1)
        fields = {"claim": record.full_name, "uid": record.uid, "secret": "/".join(record.secret or ()), "why": confirmed.doubt}
        log.warning("A Secret that the journal names is not used", extra={"fields": fields})

    def over(self, uid: str) -> None:
        self._told.discard(uid)
