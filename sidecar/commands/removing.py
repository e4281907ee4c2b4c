"""What commands share that take away what sidecars have written."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from sidecar.commands.printing import complain
from sidecar.kube.api import KubeApi, Resource
from sidecar.kube.errors import ApiError, Conflict, Forbidden, Unauthorized
from sidecar.model.objects import Json

_TRIES: Final = 3
"""Objects change all the time (a kubelet alone writes its node again and again), so a write may need another try."""


async def patched(
    kube: KubeApi,
    resource: Resource,
    name: str,
    patch: Json | None,
    *,
    namespace: str = "",
    again: Callable[[Mapping[str, Any]], Json | None],
    content_type: str,
) -> bool:
    """Whether it was written. A patch is for one state of the object; `again` says what is to be done with a later one, None: nothing.

    Raises Conflict where it changes faster than it can be written, and whatever else the API server answers.
    """
    tries = 1
    while patch is not None:
        try:
            await kube.patch(resource, name, patch, namespace=namespace, content_type=content_type)
            return True
        except Conflict:
            if tries == _TRIES:
                raise
        tries += 1
        patch = again(await kube.get(resource, name, namespace=namespace))
    return False


@contextmanager
def in_doubt_if_interrupted(what: str, row: Callable[[str], None]) -> Iterator[None]:
    """Around a write. Who is cut off meanwhile is told that nobody knows whether it was done; `row` takes the result for programs."""
    try:
        yield
    except asyncio.CancelledError:
        row("unknown")
        complain(f"interrupted; whether {what} was changed is not known; run it again to go on")
        raise


def complain_of(what: str, error: ApiError) -> None:
    remedy = "run it again with more rights" if isinstance(error, Forbidden | Unauthorized) else "run it again"
    complain(f"{what}: {error}; {remedy}")
