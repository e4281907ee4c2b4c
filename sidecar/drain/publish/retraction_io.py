"""Takes back a True that does not hold any more, before anything else is written.

Making a gate is several requests, of which each may take half a minute where the API server is slow, and for as long the old words stood.
"""

from sidecar.drain.duty import Outcome, Picture
from sidecar.drain.publish.controller import CONDITIONS, ReportWriter
from sidecar.drain.refusals_io import Refusals


class RetractionDuty:
    """Writes the Node's conditions, but only if what is stored says more than this look does."""

    def __init__(self, reports: ReportWriter, refusals: Refusals) -> None:
        self._reports = reports
        self._refusals = refusals

    async def perform(self, picture: Picture) -> Outcome:
        assessment = picture.assessment
        assert assessment is not None
        if self._reports.is_overtaken(assessment):
            await self._refusals.attempt(CONDITIONS, self._reports.write_conditions(assessment))
        return Outcome(picture)
