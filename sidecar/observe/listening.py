"""Accepts the connections of whoever asks for our pages, also while the process has no file to spare.

asyncio's own accepting takes as many at once as wait, and without a file it complains once for each and then stands still for a second.
Here a few are taken at a time, and some files are held in reserve for the time in which no other can be opened.
"""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable
from typing import Final

log = logging.getLogger("sidecar.observe")

# So few, and a breath between, that a client in a flood is heard before as many have come after it as end it for want of a request
# (`connections.Bounds.of_one_address`).
_AT_ONCE: Final = 4
_BREATH: Final = 0.005
_IN_RESERVE: Final = 4
_PAUSE: Final = 0.02
_REMIND: Final = 60.0
_NO_FILES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Listening:
    """Accepts on this socket from the beginning until `close`. `begin` makes what serves a connection, `give_way` ends one that is open."""

    def __init__(self, listening: socket.socket, begin: Callable[[], asyncio.BaseProtocol], *, give_way: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = listening
        self._begin = begin
        self._give_way = give_way
        self._reserve: list[int] = []
        self._beginning: set[asyncio.Task[object]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._told_at = -_REMIND
        listening.setblocking(False)
        self._refill()
        self._go_on()

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    async def close(self) -> None:
        """No connection begins after this."""
        self._loop.remove_reader(self._socket)
        if self._pause is not None:
            self._pause.cancel()
        self._socket.close()
        while self._reserve:
            os.close(self._reserve.pop())
        await asyncio.gather(*self._beginning, return_exceptions=True)

    def _go_on(self) -> None:
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        self._refill()
        tried = 0
        while tried < _AT_ONCE:
            tried += 1
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if error.errno in _NO_FILES and self._reserve:
                    os.close(self._reserve.pop())
                    tried -= 1  # the reserve ends first
                    continue
                self._rest(error)
                return
            accepted.setblocking(False)
            task: asyncio.Task[object] = self._loop.create_task(self._loop.connect_accepted_socket(self._begin, accepted))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)
        self._stop_for(_BREATH)

    def _stop_for(self, seconds: float) -> None:
        self._loop.remove_reader(self._socket)
        self._pause = self._loop.call_later(seconds, self._go_on)

    def _rest(self, error: OSError) -> None:
        """Make room for the next ones, and wait until it is there: the kernel would report those that wait again and again."""
        for _ in range(_IN_RESERVE):
            self._give_way()
        self._stop_for(_PAUSE)
        if self._loop.time() - self._told_at >= _REMIND:
            self._told_at = self._loop.time()
            fields = {"err": error.strerror or str(error)}
            log.warning("Connections to the pages cannot be taken: older ones give way", extra={"fields": fields})

    def _refill(self) -> None:
        try:
            while len(self._reserve) < _IN_RESERVE:
                self._reserve.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            pass  # what there is must do until the next time
