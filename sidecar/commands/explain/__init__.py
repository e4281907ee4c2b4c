"""The command `explain`: the rules of the running program, applied to facts fetched just now. Writes nothing.

`question` reads the line, `claim` and `node` answer. Here: logs, exit code, and what to do about an error.
"""

import asyncio
import logging
import sys
from collections.abc import Mapping, Sequence

from sidecar.commands.explain import claim, node
from sidecar.commands.explain.question import NODE, USAGE, read_question
from sidecar.config.parse import Parsed, parse
from sidecar.errors import SidecarError
from sidecar.kube.errors import ApiError, NotFound
from sidecar.observe.logs import OUR_ROOT, setup


def run(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Returns the exit code: 0 explained, 1 something that is needed could not be read, 2 the command line cannot be read."""
    question = read_question(words, environ)
    parsed = question and parse(["--node-deployment", *question.flags], {**environ, "NODE_NAME": question.node or "-"})
    if question is None or not isinstance(parsed, Parsed):
        print(USAGE)
        return 0
    setup("text", parsed.config.verbosity)
    if not parsed.config.verbosity:
        logging.getLogger(OUR_ROOT).setLevel(logging.WARNING)  # people want the answer, not how it was found
    answer = node.answer if question.kind == NODE else claim.answer
    try:
        print(asyncio.run(answer(parsed.config, question)))
    except SidecarError as error:
        print(f"csi-node-sidecar: {error}{_hint(error, question.kind)}", file=sys.stderr)
        return 1
    return 0


def _hint(error: SidecarError, kind: str) -> str:
    if isinstance(error, NotFound):
        return "; check the name" if kind == NODE else "; check the namespace and the name"
    return "; check --kubeconfig and your rights" if isinstance(error, ApiError) else ""
