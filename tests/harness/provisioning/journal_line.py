"""A creation as it stands in the journal, for tests of what is read back."""

from sidecar.csi.api import CreateRequest
from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.provisioning.creations.journal_lines import begin_line

RECORD = CreationRecord("uid-1", "ns", "claim-1", "fast", CreateRequest(name="pvc-1", required_bytes=2**30, capabilities=()))
LINE = begin_line(RECORD)
