"""The command `explain`: the rules of the running program, applied to facts fetched just now. Writes nothing.

`question` reads the line; each kind has a module that answers. Here: logs, exit code, and what to do about an error.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from sidecar.commands import help
from sidecar.commands.explain import claim, maintenance, node, nodes, pod, volumes
from sidecar.commands.explain.judged import AS_IN_A_DAEMON_SET
from sidecar.commands.explain.question import CLAIM, MAINTENANCE, NODE, NODES, POD, VOLUMES, exit_code, read_question
from sidecar.commands.printing import complain, show
from sidecar.commands.reach import configured
from sidecar.errors import SidecarError
from sidecar.kube.errors import ApiError, NotFound
from sidecar.observe.logs import setup_for_people

_ANSWERS: Final = {
    CLAIM: claim.answer,
    POD: pod.answer,
    NODE: node.answer,
    NODES: nodes.answer,
    VOLUMES: volumes.answer,
    MAINTENANCE: maintenance.answer,
}


def run(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Returns the exit code: 0 explained, 1 something that is needed could not be read, 2 the command line cannot be read.

    With --exit-code: 0 ready, 3 not ready, 4 not known; of several answers the worst, and 3 is worse than 4.
    """
    question = read_question(words)
    parsed = (
        None if question is None else configured([*AS_IN_A_DAEMON_SET, *question.flags], question.reach, environ, node=question.node or "-")
    )
    if question is None or parsed is None:
        show(help.text(["explain", *words]), end="")
        return 0
    setup_for_people(parsed.config.verbosity, logging.WARNING)  # people want the answer, not how it was found
    try:
        answer = asyncio.run(_ANSWERS[question.kind](parsed.config, question))
    except SidecarError as error:
        complain(f"{error}{_hint(error, question.kind)}")
        return 1
    show(answer.text)
    return exit_code(answer.statuses) if question.exit_code else 0


def _hint(error: SidecarError, kind: str) -> str:
    if isinstance(error, NotFound):
        what = {NODE: "name; what a node that is gone has left: explain volumes", MAINTENANCE: "name"}
        return f"; check the {what.get(kind, 'namespace and the name')}"
    return "; check --kubeconfig and your rights" if isinstance(error, ApiError) else ""
