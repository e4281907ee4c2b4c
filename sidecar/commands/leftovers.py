"""The command `leftovers --driver NAME [--delete VOLUME]`: lists the volumes of this node that may be left behind, with the reasons.

It deletes one of them when a person says so. It runs on the node, in the sidecar's container (`kubectl exec`), for there are the journals
and the socket of the driver. It may run beside the sidecar, which neither asks the driver for a suspect nor deletes it: it takes
no lock. What it has deleted it writes down in a file of its own there, and the sidecar strikes it out.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sidecar import settings
from sidecar.commands import help
from sidecar.commands.forms import STRUCTURED, TABLE, structured
from sidecar.commands.line import CommandParser
from sidecar.commands.printing import complain, show
from sidecar.commands.reach import Reach, configured
from sidecar.commands.table import flags_of, usage
from sidecar.config.config import Config
from sidecar.config.errors import UsageError
from sidecar.csi.api import Driver
from sidecar.csi.outcome import DriverError, NotSent, is_over
from sidecar.deletion.rules import Asked, DeletionView, Keep
from sidecar.doors import Instruments, Opened, former_journal_folder, journal_folder, open_doors
from sidecar.errors import Fatal, SidecarError
from sidecar.kube.api import KubeApi
from sidecar.local.here import Here
from sidecar.model.objects import Json
from sidecar.observe.logs import setup_for_people
from sidecar.observe.sanitize import visible
from sidecar.provisioning.creations import leftovers_io
from sidecar.provisioning.creations.confirming_io import Confirming
from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.provisioning.deletion_io import Deletion
from sidecar.provisioning.lookups import Lookups


@dataclass(frozen=True, slots=True)
class Order:
    driver: str
    delete: str | None
    yes: bool
    form: str = TABLE


def run(words: Sequence[str], environ: Mapping[str, str], *, ask: Callable[[str], bool | None] | None = None) -> int:
    """Returns the exit code: 0 done, 1 something could not be read or deleted, or nobody agreed, 2 the line cannot be read."""
    line = CommandParser(usage("leftovers"), flags_of("leftovers")).read(words)
    if line is None:
        show(help.text(["leftovers"]), end="")
        return 0
    order = Order(line.own.driver, line.own.delete, line.own.yes, line.own.output)
    parsed = configured(line.of_run, Reach.of(line.own), environ, node=environ.get("NODE_NAME") or "-")
    # An empty name, as of a variable that is not set, is no wish to see the list.
    if not order.driver or order.delete == "" or line.positional or parsed is None:
        raise UsageError([usage("leftovers")])
    if order.delete is not None and order.form in STRUCTURED and not (order.yes or parsed.config.dry_run):
        raise UsageError([f"with -o {order.form} nobody is asked: add --yes, or --dry-run to see what would be done"])
    setup_for_people(parsed.config.verbosity, logging.ERROR)
    try:
        return _carry_out(order, parsed.config, ask or _ask)
    except (SidecarError, OSError) as error:
        return complain(f"{error}; nothing was deleted")


def _carry_out(order: Order, config: Config, ask: Callable[[str], bool | None]) -> int:
    folder = journal_folder(config)
    begun = leftovers_io.read_all(folder, order.driver, former=former_journal_folder(config))
    suspects = sorted((record for record in begun.values() if record.suspect), key=lambda record: record.request.name)
    others = len(begun) - len(suspects)
    if order.delete is None:
        show(table(suspects, folder, others) if order.form == TABLE else structured(report(suspects, folder, others), order.form))
        return 0
    chosen = [record for record in suspects if order.delete in (record.request.name, _handle(record))]
    if len(chosen) != 1:
        return complain(f"{order.delete!r} is none of the suspected leftovers in {folder}; without --delete they are listed")
    return asyncio.run(_delete(order, config, chosen[0], ask))


def table(suspects: Sequence[CreationRecord], folder: Path, others: int) -> str:
    """For people."""
    beside = f"; {others} more creations are under way, which the sidecar sees to" if others else ""
    if not suspects:
        return f"No volume of this node is suspected to be left behind, by the journals in {folder}{beside}."
    rows = [
        f"{record.leftover}\n"
        f"  claim     {record.full_name} (uid {record.uid}), which is gone or has no use for it\n"
        f"  class     {record.class_name}, reclaim policy {record.reclaim_policy or 'unknown'}\n"
        f"  size      {record.request.required_bytes} bytes at least\n"
        f"  handle    {visible(_handle(record)) or 'known to the driver alone'}"
        for record in suspects
    ]
    return "\n".join([*rows, f"{len(rows)} volumes may be left behind{beside}. Delete one with --delete VOLUME if nobody wants its data."])


def report(suspects: Sequence[CreationRecord], folder: Path, others: int) -> Json:
    """For programs."""
    rows = [
        {
            **_named(record),
            "storageClassName": record.class_name,
            "reclaimPolicy": record.reclaim_policy,
            "bytes": record.request.required_bytes,
            "volumeHandle": _handle(record),
            "why": record.suspect,
            "message": record.leftover,
        }
        for record in suspects
    ]
    return {"folder": str(folder), "leftovers": rows, "underWay": others}


async def _delete(order: Order, config: Config, record: CreationRecord, ask: Callable[[str], bool | None]) -> int:
    doors = await open_doors(config, Instruments(), on_link=lambda _: None)
    link = asyncio.create_task(doors.connection.run())
    try:
        info = await _first_ready(doors, link)
        if info != order.driver:
            return complain(f"the driver at {config.csi_address} is {info}, not {order.driver}; nothing was deleted")
        here = Here(config.node_name, doors.connection.driver.info, settings.options(config), "")
        return await delete(record, here, doors.kube, doors.connection.driver, order=order, config=config, ask=ask)
    finally:
        link.cancel()
        await asyncio.gather(link, return_exceptions=True)
        await doors.close()


async def _first_ready(doors: Opened, link: "asyncio.Task[None]") -> str:
    ready = asyncio.create_task(doors.connection.first_ready())
    await asyncio.wait({ready, link}, return_when=asyncio.FIRST_COMPLETED)
    if not ready.done():
        ready.cancel()
        await link  # which says why
        raise Fatal("the connection to the driver has ended")
    return (await ready).name


async def delete(
    record: CreationRecord,
    here: Here,
    kube: KubeApi,
    driver: Driver,
    *,
    order: Order,
    config: Config,
    ask: Callable[[str], bool | None],
) -> int:
    """Finds the volume, by asking the driver for it once more, unless its handle is known; and deletes it if nothing names it."""
    # Others write in that folder too, so of what the line says only that is followed which the API server confirms.
    record = replace(record, inherited=True, from_file=True)
    deletion = Deletion(here=lambda: here, kube=kube, driver=driver)
    name, claim = record.request.name, (record.namespace, record.name)
    view = DeletionView(reason=Asked(record.uid, name), handle=_handle(record))
    verdict = await deletion.judge(view, name=name, claim=claim)
    if isinstance(verdict, Keep):
        return complain(f"{name} is not deleted: {verdict.why}")
    if not order.yes and not config.dry_run:
        known_as = f", which the driver calls {visible(_handle(record))}," if _handle(record) else ""
        question = f"{record.leftover}\nDelete volume {name}{known_as} of claim {record.full_name} with its data, on node {here.node}?"
        if (agreed := ask(question)) is None:
            return complain("there is nobody to ask: say --yes; nothing was deleted")
        if not agreed:
            return complain("nothing was deleted")
    if config.dry_run:
        text = f"would delete volume {name}, unless a PersistentVolume has the handle that the driver gives it"
        show(_done(order, record, _handle(record), text, result="would be deleted"))
        return 0
    confirming = Confirming(here=lambda: here, kube=kube, on_damage=lambda kind, count: None)
    confirmed = await confirming.ask(record)
    confirming.tell(confirmed)
    secrets = await Lookups(kube).secret_if_any(confirmed.secret, about=record.full_name)
    handle = _handle(record) or (await driver.create_volume(record.request, secrets=secrets)).volume_id

    async def known() -> Mapping[str, str]:
        return secrets

    view = DeletionView(reason=Asked(record.uid, name), handle=handle)
    try:
        kept = await deletion.delete(view, secrets=known, name=name, claim=claim)
    except DriverError as error:
        sure = isinstance(error, NotSent) or is_over(error)
        return complain(f"{error}; {'nothing was deleted' if sure else _unknown(name)}")
    except asyncio.CancelledError:
        complain(f"interrupted; {_unknown(name)}")
        raise
    if kept is not None:
        return complain(f"volume {visible(handle)} is not deleted: {kept.why}")
    show(_done(order, record, handle, f"deleted volume {name}, which the driver calls {visible(handle)}", result="deleted"))
    try:
        leftovers_io.settle(journal_folder(config), order.driver, record.key)
    except OSError as error:
        complain(f"volume {name} is deleted, but that could not be written down, so it stays listed: {error}")
    return 0


def _done(order: Order, record: CreationRecord, handle: str, text: str, *, result: str) -> str:
    """For people, or for programs."""
    if order.form == TABLE:
        return text
    return structured({**_named(record), "volumeHandle": handle, "result": result}, order.form)


def _named(record: CreationRecord) -> Json:
    return {"volume": record.request.name, "claim": {"namespace": record.namespace, "name": record.name, "uid": record.uid}}


def _unknown(name: str) -> str:
    return f"the driver may have deleted volume {name} or not, so it stays listed; to delete it again does no harm"


def _handle(record: CreationRecord) -> str:
    return record.deletion.handle if record.deletion else ""


def _ask(question: str) -> bool | None:
    """None: there is nobody to ask."""
    if not sys.stdin.isatty():
        return None
    show(f"{question}\nType yes to go on: ", end="")
    return sys.stdin.readline().strip() == "yes"
