"""The command `node reboot|retire|release NAME...`: announces what a drain of these nodes will be for, or takes that back.

It shows what `explain node` would say, asks, and writes the annotation `drain-intent`, for all drivers of a node. It neither cordons
nor evicts. The text and the patch are made in `node_intent`.
"""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from sidecar.commands import help, node_intent
from sidecar.commands.explain.judged import AS_IN_A_DAEMON_SET, Judged, judge, look, own_of
from sidecar.commands.explain.node import nobody
from sidecar.commands.explain.rows import about_own_word, as_json
from sidecar.commands.forms import STRUCTURED, Told
from sidecar.commands.line import CommandParser
from sidecar.commands.node_intent import Verb
from sidecar.commands.printing import complain, show
from sidecar.commands.reach import Reach, configured
from sidecar.commands.table import flags_of, usage
from sidecar.commands.tables import Fitted
from sidecar.commands.text import aligned, render, verdicts
from sidecar.config.config import Config
from sidecar.config.errors import UsageError
from sidecar.config.words import closest, quoted
from sidecar.doors import Instruments, open_doors
from sidecar.drain.words import Intent
from sidecar.errors import SidecarError
from sidecar.kube.api import MERGE_PATCH, NODES, KubeApi
from sidecar.kube.errors import ApiError, Conflict, Forbidden, NotFound, Unauthorized, Unavailable
from sidecar.model.nodes import Node
from sidecar.observe.logs import setup_for_people

T = TypeVar("T")

# A node changes all the time, so a write may need another try.
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be done."""

    verb: Verb
    nodes: tuple[str, ...]
    driver: str
    yes: bool
    form: str
    flags: tuple[str, ...]
    reach: Reach


def run(words: Sequence[str], environ: Mapping[str, str], *, ask: Callable[[str], bool | None] | None = None) -> int:
    """Returns the exit code: 0 it is announced, 1 something could not be read or written, or nobody agreed, 2 the line cannot be read.

    `ask` returns whether somebody agrees, None: there is nobody to ask.
    """
    order = _read(words)
    parsed = None if order is None else configured([*AS_IN_A_DAEMON_SET, *order.flags], order.reach, environ)
    if order is None or parsed is None:
        show(help.text(["node", *words]), end="")
        return 0
    if order.form in STRUCTURED and not (order.yes or parsed.config.dry_run):
        raise UsageError([f"with -o {order.form} nobody is asked: add --yes, or --dry-run to see what would be done"])
    setup_for_people(parsed.config.verbosity, logging.WARNING)
    try:
        with Told(order.form, verb=order.verb.value, dryRun=parsed.config.dry_run, judgements=[], nodes=[], next=[]) as told:
            return _carry_out(order, parsed.config, ask or _ask, told)
    except SidecarError as error:
        return complain(f"{error}{_hint(error)}; nothing was changed")


def _read(words: Sequence[str]) -> Order | None:
    """None where help is wanted."""
    line = CommandParser(usage("node"), flags_of("node")).read(words)
    if line is None:
        return None
    verb, *nodes = line.positional or ("",)
    if wrong := _wrong(verb, nodes):
        raise UsageError([wrong, usage("node")])
    return Order(Verb(verb), tuple(dict.fromkeys(nodes)), line.own.driver, line.own.yes, line.own.output, line.of_run, Reach.of(line.own))


def _wrong(verb: str, nodes: Sequence[str]) -> str:
    """What is wrong with these words; empty: nothing."""
    if verb not in list(Verb):
        meant = closest(verb, list(Verb))
        return f"there is no verb {quoted(verb)}" + (f"; did you mean {meant}?" if meant else "") if verb else "the verb is missing"
    if not nodes:
        return f"node {verb} needs the name of a node"
    odd = next((name for name in nodes if not name or "/" in name), None)
    return "" if odd is None else f"{quoted(odd)} is not the name of a node: give the name alone"


def _carry_out(order: Order, config: Config, ask: Callable[[str], bool | None], told: Told) -> int:
    judged = asyncio.run(_at_the_door(config, lambda kube: _show(kube, order, config, told)))
    changing = []
    for node, _ in judged:
        if changes := node_intent.change(node, order.verb):
            changing.append(node)
            if config.dry_run:
                told.row("nodes", name=node.name, annotations=changes, result="would be changed")
        else:
            told.row("nodes", name=node.name, result="is as it should be")
    if config.dry_run and changing:
        told.say("\nnothing was changed, because of --dry-run")
        return 0
    if changing and not order.yes:
        agreed = ask(f"\n{order.verb} {', '.join(node.name for node in changing)}? [y/N] ")
        if agreed is None:
            return complain("there is no terminal to ask on; nothing was changed: add --yes")
        if not agreed:
            return complain("nothing was changed")
    done = asyncio.run(_at_the_door(config, lambda kube: _write_all(kube, changing, order.verb, told))) if changing else []
    as_wanted = [(node, its) for node, its in judged if node in done or node not in changing]
    steps = [step for node, its in as_wanted for step in node_intent.next_steps(node, order.verb, its)]
    told.say("\n".join(["", "next:", *(f"  {step}" for step in steps)] if steps else []))
    for step in steps:
        told.row("next", command=step.partition("   # ")[0])
    return 0 if len(done) == len(changing) else 1


async def _at_the_door(config: Config, act: Callable[[KubeApi], Awaitable[T]]) -> T:
    doors = await open_doors(config, Instruments(), on_link=lambda _: None)
    try:
        return await act(doors.kube)
    finally:
        await doors.close()


async def _show(kube: KubeApi, order: Order, config: Config, told: Told) -> list[tuple[Node, tuple[Judged, ...]]]:
    """Tells what would happen. Raises before anything is asked or written if a node does not exist."""
    nodes = [Node.of(await kube.get(NODES, name)) for name in order.nodes]
    judged: list[tuple[Judged, ...]] = [()] * len(nodes)
    if order.verb is not Verb.RELEASE:
        cluster = await look(kube, nodes[0].name if len(nodes) == 1 else "")
        # As `explain node` has them, for the nodes as they will be.
        cluster.nodes |= {node.name: node_intent.afterwards(node, order.verb) for node in nodes}
        judged = [judge(cluster, node.name, order.driver, own_of(config)) for node in nodes]
        for node, its in zip(nodes, judged, strict=True):
            told.say("\n\n".join(_told(one, order.verb.intent) for one in its) or nobody(node.name), end="\n\n")
            for one in its:
                told.row("judgements", **as_json(one))
    deaf = filter(None, (node_intent.unheard(node.name, its) for node, its in zip(nodes, judged, strict=True)))
    told.say("\n".join([*(node_intent.will_do(node, order.verb) for node in nodes), node_intent.meaning(order.verb), *deaf]))
    return list(zip(nodes, judged, strict=True))


def _told(judged: Judged, intent: Intent | None) -> str:
    text = render(judged.assessment, Fitted(), intent=intent, beside=about_own_word(judged, intent))
    return "\n".join([text, "", *aligned(verdicts(judged.assessment, Intent))])


async def _write_all(kube: KubeApi, nodes: Sequence[Node], verb: Verb, told: Told) -> list[Node]:
    """Those that were written. One that fails keeps no other from being written."""
    done = []
    for node in nodes:
        try:
            await _write(kube, node, verb)
        except ApiError as error:
            complain(f"node {node.name} was not changed: {error}{_hint(error)}")
            told.row("nodes", name=node.name, result="failed", error=str(error))
            continue
        told.say(f"{node.name}: done")
        told.row("nodes", name=node.name, annotations=node_intent.change(node, verb), result="changed")
        done.append(node)
    return done


async def _write(kube: KubeApi, shown: Node, verb: Verb) -> None:
    """On what is stored now: people took their time to answer. It must still be the machine that they were shown."""
    for left in reversed(range(_TRIES)):  # an answer that was lost may have been a yes, which the next look shows
        obj = await kube.get(NODES, shown.name)
        node = Node.of(obj)
        if node.uid != shown.uid:
            raise NotFound(f"another machine has come under the name {shown.name}", status=404)
        changes = node_intent.change(node, verb)
        if not changes:
            return
        body = node_intent.patch(node, changes, resource_version=obj["metadata"]["resourceVersion"])
        try:
            await kube.patch(NODES, node.name, body, content_type=MERGE_PATCH)
            return
        except (Conflict, Unavailable):
            if not left:
                raise


def _ask(question: str) -> bool | None:
    if not sys.stdin.isatty():
        return None
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _hint(error: SidecarError) -> str:
    match error:
        case NotFound():
            return "; check the name"
        case Forbidden() | Unauthorized():
            return "; check your rights: it has to get and patch nodes"
        case ApiError():
            return "; check --kubeconfig"
        case _:
            return ""
