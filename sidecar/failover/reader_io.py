"""The command `read-drbd`: hands on what `drbdsetup` prints, to whoever may reach its socket. It does not know what that means.

It runs in a container of its own, since `drbdsetup` wants rights that a sidecar must not have. Only the standard library is used. Each text
goes out as a line `KIND NANOSECONDS LENGTH` and so many bytes; the time is when it was asked for, by CLOCK_MONOTONIC.
"""

import argparse
import asyncio
import json
import logging
import re
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

_READS: Final = {"events": ("events2", "--now", "--full"), "status": ("status", "--json"), "show": ("show", "--json")}
_EVERY: Final = 5.0
_AT_MOST_EVERY: Final = 1.0
_LIMIT: Final = 4.0  # seconds of one command, before it is killed
_OLD: Final = 12e9  # nanoseconds: what was read, or asked for, before counts no more
_MOST_STUCK: Final = 4  # commands that were killed and do not end: the kernel holds them
_MOST_TEXT: Final = 8 << 20
_MOST_LINE, _MOST_WORD = 64 << 10, 512
_MOST_CLIENTS, _MOST_UNREAD = 4, _MOST_TEXT
_RESOURCE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}")


class Reader:
    def __init__(self, path: Path, *, release: bool, program: str = "drbdsetup") -> None:
        self._path, self._release, self._program = path, release, program
        self._clients: set[asyncio.StreamWriter] = set()
        self._last: dict[str, tuple[int, bytes]] = {}  # by kind
        self._again = asyncio.Event()
        self._stuck: list[Process] = []
        self._said: dict[str, str] = {}

    async def run(self) -> None:
        """Until SIGTERM. What it has started ends with it."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)  # type: ignore[union-attr]
        server = await asyncio.start_unix_server(self._serve, self._path, limit=_MOST_WORD)
        self._path.chmod(0o666)  # its folder says who may reach it: sidecar and reader may run as different users
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow())
                while True:
                    await asyncio.gather(*(self._read(kind, words) for kind, words in _READS.items()), asyncio.sleep(_AT_MOST_EVERY))
                    try:
                        async with asyncio.timeout(_EVERY - _AT_MOST_EVERY):
                            await self._again.wait()
                    except TimeoutError:
                        pass
                    self._again.clear()
        finally:
            server.close()
            self._path.unlink(missing_ok=True)

    async def _read(self, kind: str, words: Sequence[str]) -> None:
        at = time.monotonic_ns()
        text, why = await self._call(words)
        if why:
            self._send("failed", at, f"{kind} {why}".encode())
        else:
            self._last[kind] = at, text
            self._send(kind, at, text)
        if self._said.get(kind, "") != why:
            self._said[kind] = why
            log.warning("drbdsetup %s: %s", words[0], why or "works again")

    async def _call(self, words: Sequence[str]) -> tuple[bytes, str]:
        """What it has printed, or why that does not count."""
        try:
            async with self._started(words) as process, asyncio.timeout(_LIMIT):
                assert process.stdout is not None
                try:
                    await process.stdout.readexactly(_MOST_TEXT + 1)
                    return b"", "it prints too much"
                except asyncio.IncompleteReadError as ended:
                    code = await process.wait()
                    return ended.partial, f"it ended with {code}" if code else ""
        except TimeoutError:
            return b"", f"it took longer than {_LIMIT:.0f} s and was killed"
        except OSError as error:
            return b"", str(error)

    async def _follow(self) -> None:
        """A change is handed on at once, and all is read anew soon. It only hastens: that a stream is silent proves nothing."""
        while True:
            try:
                async with self._started(("events2",)) as process:
                    assert process.stdout is not None
                    while line := await process.stdout.readline():
                        if not line.startswith(b"exists"):
                            self._send("change", time.monotonic_ns(), line.strip())
                            if b" done:" not in line:  # progress of a resync
                                self._again.set()
            except (OSError, ValueError):
                pass  # it cannot be started, which the other commands tell, or prints a line without end
            await asyncio.sleep(_EVERY)

    @asynccontextmanager
    async def _started(self, words: Sequence[str]) -> AsyncIterator[Process]:
        self._stuck = [process for process in self._stuck if process.returncode is None]
        if len(self._stuck) >= _MOST_STUCK:
            raise OSError("too many commands were killed and have not ended")
        process = await asyncio.create_subprocess_exec(self._program, *words, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, limit=_MOST_LINE)
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                try:
                    async with asyncio.timeout(1.0):
                        await process.wait()
                except TimeoutError:
                    self._stuck.append(process)

    # --- who listens ------------------------------------------------------------------------------------------------------------

    async def _serve(self, stream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._clients) >= _MOST_CLIENTS:
                return
            self._clients.add(writer)
            for kind, (at, text) in self._last.items():
                writer.write(_framed(kind, at, text))
            while line := (await stream.readline()).decode(errors="replace"):
                word, _, asked = line.strip().partition(" ")
                if word != "release":
                    return
                name, _, since = asked.partition(" ")
                # What waited behind commands that hang was decided on what may not be so any more.
                is_old = since.isdecimal() and time.monotonic_ns() - int(since) > _OLD
                why = "it was asked for too long ago" if is_old else await self._let_go(name)
                log.warning("release %r: %s", name[:128], why or "drbdsetup was asked to fail its I/O")
        except (OSError, ValueError, asyncio.CancelledError):
            pass  # it is gone, or too loud, or the reader ends
        finally:
            self._clients.discard(writer)
            writer.close()

    def _send(self, kind: str, at: int, text: bytes) -> None:
        for writer in [*self._clients]:
            if writer.transport.get_write_buffer_size() > _MOST_UNREAD:
                writer.transport.abort()
            else:
                writer.write(_framed(kind, at, text))

    async def _let_go(self, name: str) -> str:
        """Fails the I/O of a resource that is frozen; why not, if not. Whether it was done is seen in the next status, and nowhere else."""
        if not self._release:
            return "the reader was started without --release"
        at, text = self._last.get("status", (0, b""))
        try:
            shown = [(one["role"], one["suspended"], one["suspended-user"]) for one in json.loads(text) if one["name"] == name]
        except (ValueError, KeyError, TypeError, RecursionError):
            return "the status cannot be read"
        if not _RESOURCE.fullmatch(name) or shown != [("Primary", True, False)] or time.monotonic_ns() - at > _OLD:
            return "the status does not show it as Primary with I/O that is frozen, and not by a person"
        _, why = await self._call(("secondary", "--force", name))
        self._again.set()
        return why


def _framed(kind: str, at: int, text: bytes) -> bytes:
    return b"%s %d %d\n%s" % (kind.encode(), at, len(text), text)


def run(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("csi-node-sidecar read-drbd")
    parser.add_argument("--listen", required=True, type=Path, metavar="SOCKET")
    parser.add_argument("--release", action="store_true")
    line = parser.parse_args(words)
    logging.basicConfig(format="%(asctime)s %(message)s")
    try:
        if line.listen.is_socket():
            line.listen.unlink()
        asyncio.run(Reader(line.listen, release=line.release).run())
    except (asyncio.CancelledError, KeyboardInterrupt):
        return 0
    except OSError as error:
        log.error("%s: %s", line.listen, error)
        return 1
    return 0
