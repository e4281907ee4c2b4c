"""Who sends the request that is carried out: a request that has left a process says so too, when the process is dead by then."""

import contextvars
from typing import Final

SENDER: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("sender", default="")
"""The node whose sidecar it is; empty: somebody else."""
