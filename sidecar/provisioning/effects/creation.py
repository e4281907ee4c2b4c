"""Has the driver create a claim's volume, and does what its answer calls for. What the answer means: `conclusions`."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from sidecar.csi.outcome import Done, DriverError, DriverFault, MaybeRunning, NeverSent, NoSpaceHere, Outcome, Refused, of_failure
from sidecar.kube.errors import ApiError, Unavailable
from sidecar.model import names
from sidecar.model.objects import Claim
from sidecar.provisioning.conclusions import conclude
from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.provisioning.decisions import Clash, CleanUp, Conclusion, Create, Remember, Reschedule, Retry, Store, Undo
from sidecar.provisioning.effects.handback import HandBack
from sidecar.provisioning.effects.shared import Shared
from sidecar.provisioning.effects.storing import Storer
from sidecar.provisioning.effects.undoing import Undoer
from sidecar.provisioning.findings import Infeasible
from sidecar.provisioning.progress import asked, created_for, volume_exists
from sidecar.provisioning.requests import sources
from sidecar.provisioning.view import ClaimView


class Creator:
    def __init__(self, shared: Shared, *, storer: Storer, undoer: Undoer, hand_back: HandBack) -> None:
        self._driver = shared.tools.driver
        self._metrics = shared.tools.metrics
        self._clock = shared.tools.clock
        self._retry = shared.tools.retry
        self._here = shared.here
        self._space = shared.space
        self._table = shared.table
        self._creations = shared.creations
        self._lookup = shared.lookup
        self._reports = shared.reports
        self._holders = shared.holders
        self._storer = storer
        self._undoer = undoer
        self._hand_back = hand_back
        for kind in DriverFault:
            self._metrics.driver_fault(kind.value, 0)  # a series that begins at nothing shows the first fault as an increase

    async def create(self, uid: str, view: ClaimView, attempt: Create) -> float | None:
        findings = self._table.findings(uid)
        if (source := sources.to_release(attempt.claim)) != findings.source.source:
            findings = replace(findings, source=replace(findings.source, source=source))
            self._table.learn(uid, findings)
        try:
            secrets = await self._lookup.secret(attempt.refs.provisioner)
        except Unavailable as error:
            return self._reports.unreachable(uid, attempt.claim, error)
        except ApiError as error:
            if view.gone and view.record is not None:
                decision = CleanUp(view.record, f"the claim is gone, and its secret with it: {error}")
                self._reports.note(uid, attempt.claim, decision)
                return await self._undoer.clean_up(uid, decision.record)
            self.give_up_space(uid, attempt.claim)
            return self._reports.failed(uid, attempt.claim, str(error))
        held = findings.source if not findings.source.just_written else replace(findings.source, just_written=False)
        self._table.learn(uid, replace(findings, source=held, hopeless=False, creating_since=self._clock()))
        with self._table.in_hand(uid):
            return await self._ask_and_follow(uid, view, attempt, secrets)

    async def _ask_and_follow(self, uid: str, view: ClaimView, attempt: Create, secrets: Mapping[str, str]) -> float | None:
        # Said before the driver is asked: if this look is cut off, the next one must know that a volume may exist.
        self._table.advance(uid, asked(view.progress, attempt.claim))
        if view.record is not None and view.record.inherited and not view.gone:
            # The claim shows that it has never had the volume, so the process before this one has stored nothing.
            self._table.records.keep(replace(view.record, inherited=False, unproven=False, node=view.here.node))
        begun = self._table.records.get(uid)
        first = begun is None
        if (begun is None or begun.request != attempt.request) and (why := await self._begin(attempt, begun)):
            self._table.advance(uid, view.progress)
            return self._reports.failed(uid, attempt.claim, f"the creation is not begun, because it cannot be recorded: {why}")
        outcome: Outcome | None = None
        was_sent, has_place = True, False
        try:
            although = f" ({attempt.why})" if view.standing.closed else ""
            self._reports.tell(attempt.claim, names.NORMAL, names.PROVISIONING, _is_provisioning(attempt.claim) + although)
            outcome = await self._ask_driver(view, attempt, secrets)
            await self._creations.count_losses(uid)
            if isinstance(outcome, MaybeRunning) or (isinstance(outcome, Refused) and outcome.doubtful):
                self._creations.left_open(uid)
            says_none = isinstance(outcome, NoSpaceHere | Refused) and not volume_exists(view.progress)  # else it contradicts itself
            if says_none or (first and isinstance(outcome, NeverSent)):
                self._concluded(view, attempt, outcome)
            if isinstance(outcome, Done):
                handle, name = outcome.volume.volume_id, attempt.request.name
                try:
                    holder = await self._holders.other(handle, uid=uid, name=name, asked_at=view.now)
                except ApiError as error:
                    return self._reports.unreachable(uid, attempt.claim, error)
                view = replace(view, holder=holder) if holder else view
            self._judge_promise(uid, outcome)
            progress, conclusion = conclude(view, attempt, outcome)
            was_sent, has_place = not isinstance(outcome, NeverSent), isinstance(outcome, Done)
            outcome = None  # how long ever the API server takes, only the conclusion is held
            self._reports.note(uid, attempt.claim, conclusion)
            self._table.advance(uid, progress)
            del progress
            return await self._follow(uid, attempt, conclusion)
        finally:
            if was_sent:
                self._space.changed(attempt.claim.class_name, placed=has_place and view.here.with_topology)

    async def _begin(self, attempt: Create, begun: CreationRecord | None) -> str:
        """Writes the creation down, because from here on a volume may exist whatever becomes of this process. Returns why it cannot be.
        An attempt that was `begun` otherwise stays on record: a volume that exists may have been made as it asked for."""
        claim = attempt.claim
        secret = attempt.refs.provisioner
        whose = (secret.namespace, secret.name) if secret else None
        policy = attempt.class_.reclaim_policy
        here = self._here()
        record = CreationRecord(
            claim.uid,
            claim.namespace,
            claim.name,
            claim.class_name,
            attempt.request,
            whose,
            reclaim_policy=policy,
            node=here.node,
            timeout=here.options.driver_timeout,
        )
        return await self._creations.begin(record if begun is None else begun.asked_anew(record))

    def _concluded(self, view: ClaimView, attempt: Create, outcome: Outcome) -> None:
        """The driver has said that there is no volume, so the record is struck out. It stays if an earlier call may still make one, or the
        driver gave no reason, or was asked otherwise before: then the driver is asked again when the claim is gone."""
        record = self._table.records.get(attempt.claim.uid)
        same = record is not None and not record.earlier and record.deletion is None
        if same and not (isinstance(outcome, Refused) and outcome.doubtful):
            self._creations.denied(attempt.claim.uid, self._clock(), view.here.options.driver_timeout)

    async def _ask_driver(self, view: ClaimView, attempt: Create, secrets: Mapping[str, str]) -> Outcome:
        try:
            return Done(await self._driver.create_volume(attempt.request, secrets=secrets))
        except DriverError as error:
            return of_failure(error, may_reschedule=view.here.with_topology and bool(attempt.claim.selected_node))
        except asyncio.CancelledError:
            self._creations.left_open(attempt.claim.uid)  # the look's deadline is over, and the driver may be at it still
            raise

    async def _follow(self, uid: str, attempt: Create, conclusion: Conclusion) -> float | None:
        match conclusion:
            case Store():
                return await self._storer.store(uid, conclusion)
            case Undo(claim, volume_id, secret, why, elsewhere):
                undone = await self._undoer.undo(uid, claim, volume_id, secret=secret, why=why, elsewhere=elsewhere)
                return max(self._reports.failed(uid, claim, undone), self._undoer.next_turn(uid))
            case Retry(claim, why, infeasible):
                if not infeasible:
                    return self._reports.failed(uid, claim, why)
                self.give_up_space(uid, claim)
                self._reports.failed(uid, claim, f"Volume provisioning is infeasible with these arguments, retries will be delayed: {why}")
                held = Infeasible(self._clock() + self._retry.cap, attempt.class_.uid)
                self._table.learn(uid, replace(self._table.findings(uid), infeasible=held))
                return held.until
            case Remember(claim, why):
                return self._reports.failed(uid, claim, why)
            case Clash():
                return self._clashes(uid, conclusion)
            case Reschedule():
                return await self._hand_back.reschedule(uid, conclusion)
            case _:
                assert_never(conclusion)

    def _clashes(self, uid: str, clash: Clash) -> float:
        """Told once for each handle: what the driver has to mend is not mended by telling it again."""
        findings = self._table.findings(uid)
        anew = findings.clash != clash.handle
        if anew:
            self._metrics.driver_fault(DriverFault.DUPLICATE_HANDLE.value)
            self._table.learn(uid, replace(findings, clash=clash.handle))
        return self._reports.failed(uid, clash.claim, clash.why, tell=anew)

    def _judge_promise(self, uid: str, outcome: Outcome) -> None:
        """A refusal that is final ends what was promised to the claim, and so do a few failures that may pass. That the driver is away says
        nothing about the claim."""
        findings = self._table.findings(uid)
        match outcome:
            case Refused(doubtful=False):
                self._table.learn(uid, replace(findings, hopeless=True))
            case Refused() | MaybeRunning():
                self._table.learn(uid, replace(findings, failures=findings.failures + 1))
            case _:
                pass

    def give_up_space(self, uid: str, claim: Claim) -> None:
        """Until somebody changes something it will not be created, and must not keep others from the room it would take."""
        hopeless = created_for(self._table.progress(uid)) is None  # else the driver may still be taking it
        self._table.learn(uid, replace(self._table.findings(uid), hopeless=hopeless))
        self._space.promise_changed(claim.class_name)


def _is_provisioning(claim: Claim) -> str:
    return f'External provisioner is provisioning volume for claim "{claim.full_name}"'
