"""A process without a file descriptor to spare, as when a tenant's connections or a leak elsewhere have used up all."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_more_files(spare: int = 0) -> Iterator[None]:
    """Within, this process can open `spare` more files, then one for each that it closes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(spare + 1)]
    for file in opened:
        os.close(file)
    # The kernel gives the lowest number that is free, so no number above the last of these is free below the limit.
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened[-1], hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
