"""The command `label --driver NAME`: has the API server label the claims of one driver that are older than the policy that labels claims.

The policy (deploy/components/scoped-watches) acts on writes, so each such claim is written once, by a patch that says nothing. What has
the right label already is left alone, so a run that was cut off is gone on with by running it again.
"""

import asyncio
import logging
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.commands import help
from sidecar.commands.forms import TABLE, Told
from sidecar.commands.line import read_for_driver
from sidecar.commands.printing import complain, show
from sidecar.config.parse import Parsed
from sidecar.doors import Instruments, open_doors
from sidecar.errors import SidecarError
from sidecar.kube.api import CLAIMS, CLASSES, MERGE_PATCH, KubeApi, records
from sidecar.kube.errors import ApiError, Forbidden, NotFound, TooManyRequests, Unauthorized, Unavailable
from sidecar.model import names
from sidecar.model.objects import Class, Json, claim_provisioner, selected_node
from sidecar.observe.logs import setup_for_people

_TOLD_EVERY: Final = 100
_MOST_FAILURES_IN_A_ROW: Final = 5
"""After so many the API server is away; or, if it refuses them, nobody can write the claims of that namespace, as where an admission
policy finds fault with them. Those of others may do better."""
_MOST_BEFORE_THE_FIRST: Final = 100
"""Where so many are refused and none is written, the rights are missing."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A claim, as far as its label goes."""

    namespace: str
    name: str
    provisioner: str
    class_name: str
    has: str
    should_have: str

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


class NotLabelled(SidecarError):
    """The API server took the write and did not label the claim."""


def run(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Returns the exit code: 0 all claims are labelled, 1 some are not, 2 the command line cannot be read."""
    line = read_for_driver(words, environ, "label")
    if line is None:
        show(help.text(["label"]), end="")
        return 0
    own, parsed = line
    setup_for_people(parsed.config.verbosity, logging.ERROR)
    try:
        return asyncio.run(_run(parsed, own))
    except SidecarError as error:
        hint = "" if isinstance(error, NotLabelled) else "; check --kubeconfig and your rights"
        return complain(f"{error}{hint}; run it again to go on")


async def _run(parsed: Parsed, own: Namespace) -> int:
    doors = await open_doors(parsed.config, Instruments(), on_link=lambda _: None)
    try:
        return await label(doors.kube, own.driver, dry_run=parsed.config.dry_run, namespace=own.namespace, form=own.output)
    finally:
        await doors.close()


async def label(kube: KubeApi, driver: str, *, dry_run: bool, namespace: str = "", form: str = TABLE) -> int:
    """Writes what is due, in one namespace or in all, one claim after the other, at the client's own rate."""
    classes = [item async for item in records(kube, CLASSES, Class.of)]
    waiting = due([item async for item in records(kube, CLAIMS, labelled, namespace=namespace)], driver, classes)
    with Told(form, driver=driver, dryRun=dry_run, claims=[]) as told:
        if not waiting:
            told.say(f"All claims of {driver} have their label; check the driver's name if you expected something.")
            return 0
        if not dry_run:
            return await _label_all(kube, driver, waiting, told)
        for claim in waiting:
            told.say(_would(claim))
            told.row("claims", **_as_json(claim), result="would be labelled")
        told.say(f"{len(waiting)} claims of {driver}; nothing was changed")
        return 0


async def _label_all(kube: KubeApi, driver: str, waiting: Sequence[Labelled], told: Told) -> int:
    told.say(f"{len(waiting)} claims of {driver} are to be labelled")
    tally = _Tally()
    for number, claim in enumerate(waiting, 1):
        if tally.leaves_out(claim):
            told.row("claims", **_as_json(claim), result="not tried")
        else:
            try:
                await _touch(kube, claim)
                tally.written(claim)
                told.row("claims", **_as_json(claim), result="labelled")
            except (ApiError, NotLabelled) as error:
                told.row("claims", **_as_json(claim), result="failed", error=str(error))
                if tally.is_hopeless(claim, error):
                    raise
                complain(f"claim {claim.full_name}: {error}{_remedy(error)}")
        if number % _TOLD_EVERY == 0 or number == len(waiting):
            told.say(f"labelled {number - tally.failed} of {len(waiting)}")
    for namespace, count in tally.left_out.items():
        complain(f"{count} more claims of namespace {namespace} were not tried, after {_MOST_FAILURES_IN_A_ROW} failures in a row there")
    return complain(f"{tally.failed} claims have no label; run it again to try them once more") if tally.failed else 0


class _Tally:
    """What came of the writes so far, and with it whether to go on."""

    def __init__(self) -> None:
        self.failed = 0
        self.left_out: Counter[str] = Counter()
        """By namespace: the claims that are not tried any more."""
        self._refused: Counter[str] = Counter()
        """By namespace: in a row."""
        self._unanswered = 0
        """In a row."""
        self._has_written = False

    def written(self, claim: Labelled) -> None:
        self._has_written = True
        self._unanswered = self._refused[claim.namespace] = 0

    def leaves_out(self, claim: Labelled) -> bool:
        if self._refused[claim.namespace] < _MOST_FAILURES_IN_A_ROW:
            return False
        self.failed += 1
        self.left_out[claim.namespace] += 1
        return True

    def is_hopeless(self, claim: Labelled, error: SidecarError) -> bool:
        """Counts the failure. True: the next claim would fail in the same way."""
        self.failed += 1
        if isinstance(error, Unavailable | TooManyRequests):
            self._unanswered += 1
        else:
            self._unanswered = 0
            self._refused[claim.namespace] += 1
        if self._unanswered == _MOST_FAILURES_IN_A_ROW or isinstance(error, NotLabelled | Unauthorized):
            return True
        return not self._has_written and sum(self._refused.values()) == _MOST_BEFORE_THE_FIRST


def labelled(obj: Json) -> Labelled:
    meta, spec = obj["metadata"], obj.get("spec") or {}
    node, provisioner = selected_node(obj), claim_provisioner(obj)
    should = names.claim_label(selected_node=node, provisioner=provisioner, volume_name=spec.get("volumeName") or "", uid=meta["uid"])
    class_name = (meta.get("annotations") or {}).get(names.STORAGE_CLASS_BETA, spec.get("storageClassName") or "")
    return Labelled(meta["namespace"], meta["name"], provisioner, class_name, has=_label(obj), should_have=should)


def due(claims: Iterable[Labelled], driver: str, classes: Iterable[Class]) -> list[Labelled]:
    """The claims of this driver whose label is missing or wrong, as it is where the policy was away. A late claim that no pod has needed
    yet is known by its class alone."""
    of_driver = {item.name for item in classes if item.provisioner == driver}
    return [
        claim
        for claim in claims
        if claim.has != claim.should_have and (claim.provisioner == driver or (not claim.provisioner and claim.class_name in of_driver))
    ]


async def _touch(kube: KubeApi, claim: Labelled) -> None:
    """Whatever has happened to the claim meanwhile, the label that it gets is that of what it is now."""
    try:
        written = await kube.patch(CLAIMS, claim.name, {}, content_type=MERGE_PATCH, namespace=claim.namespace)
    except NotFound:
        return
    if _label(written) != labelled(written).should_have:
        raise NotLabelled(
            f"the API server has not labelled claim {claim.full_name}: is components/scoped-watches installed, as it is in deploy/? "
            "A new policy takes effect after some seconds"
        )


def _label(obj: Json) -> str:
    return str((obj["metadata"].get("labels") or {}).get(names.CLAIM_LABEL, ""))


def _as_json(claim: Labelled) -> Json:
    return {"namespace": claim.namespace, "name": claim.name, "label": claim.should_have, "labelBefore": claim.has}


def _would(claim: Labelled) -> str:
    return f"would label claim {claim.full_name}: {claim.should_have}" + (f" instead of {claim.has}" if claim.has else "")


def _remedy(error: SidecarError) -> str:
    return "; it takes the right to patch persistentvolumeclaims" if isinstance(error, Forbidden) else ""
