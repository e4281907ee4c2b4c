"""A server that means harm: each request still ends, by an answer or by one exception, and no other request is any the worse for it."""

import asyncio
import gzip
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial

import pytest

from sidecar.http1 import answers
from sidecar.kube.api import VOLUMES
from sidecar.kube.client import KubeClient
from sidecar.kube.errors import ApiError, Unavailable
from sidecar.model.objects import Json
from tests.harness.loops import run
from tests.kube.server import client_of

Hostile = Callable[[asyncio.StreamWriter], AsyncIterator[bytes]]
SECONDS = 0.2
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
TRUE = b'{"metadata":{"name":"true"}}'
FALSE = b'{"metadata":{"name":"false"}}'


def answer(body: bytes, *, head: bytes = HEAD) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def talk(hostile: Hostile, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers truly about the volume `true`, and otherwise as told."""
    try:
        while line := (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0]:
            if b"/true " in line:
                writer.write(answer(TRUE))
                continue
            async for piece in hostile(writer):
                writer.write(piece)
                await writer.drain()
    except (OSError, EOFError):
        pass  # the client has left
    finally:
        writer.transport.abort()


def against(hostile: Hostile, *, seconds: float = SECONDS) -> AbstractAsyncContextManager[KubeClient]:
    return client_of(partial(talk, hostile), request_timeout=seconds)


async def outcomes(hostile: Hostile, *, count: int = 1) -> list[Json | BaseException]:
    """Of so many requests at once, among honest ones. On a busy machine these may be cut off as well: then all have a minute."""
    good = [json.loads(TRUE)] * (3 * count)
    told, others = await _asked(hostile, count, seconds=SECONDS)
    if others != good:
        told, others = await _asked(hostile, count, seconds=60.0)
    assert others == good
    return told


async def _asked(hostile: Hostile, count: int, *, seconds: float) -> tuple[list[Json | BaseException], list[Json | BaseException]]:
    async with against(hostile, seconds=seconds) as client:
        asked = [client.get(VOLUMES, name) for _ in range(count) for name in ("true", "false", "true")]
        found = await asyncio.gather(*asked, return_exceptions=True)
        found += await asyncio.gather(*(client.get(VOLUMES, "true") for _ in range(count)), return_exceptions=True)
    return found[1 : 3 * count : 3], [each for at, each in enumerate(found) if at >= 3 * count or at % 3 != 1]


def says(*pieces: bytes, then: str = "stays") -> Hostile:
    async def hostile(writer: asyncio.StreamWriter) -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece
        if then == "closes":
            writer.transport.abort()

    return hostile


def repeats(begin: bytes, goes_on: bytes) -> Hostile:
    async def hostile(writer: asyncio.StreamWriter) -> AsyncIterator[bytes]:
        yield begin
        while not writer.transport.is_closing():
            yield goes_on
            await asyncio.sleep(0)

    return hostile


def drips(raw: bytes) -> Hostile:
    async def hostile(writer: asyncio.StreamWriter) -> AsyncIterator[bytes]:
        for byte in raw:
            yield bytes([byte])
            await asyncio.sleep(SECONDS / 5)

    return hostile


ZEROS = gzip.compress(bytes(10_000_000))
HARM: dict[str, tuple[Hostile, str]] = {
    "silence": (says(b""), "no answer in time"),
    "hangs-up": (says(then="closes"), "closed before there was an answer"),
    "byte-by-byte": (drips(answer(FALSE)), "no answer in time"),
    "garbage": (says(b"\x00\xff" * 100), "no HTTP answer"),
    "endless-first-line": (repeats(b"HTTP/1.1 200 ", b"O" * 5000), "no HTTP answer"),
    "endless-headers": (repeats(HEAD, b"X: y\r\n" * 1000), "no HTTP answer"),
    "endless-interim-answers": (repeats(b"", b"HTTP/1.1 100 Go on\r\n\r\n" * 10), "no answer in time"),
    "endless-body": (repeats(HEAD + b"\r\n", b"x" * 50_000), "longer than 1000000 bytes"),
    "endless-chunks": (repeats(CHUNKED, b"1\r\nx\r\n" * 1000), "longer than 1000000 bytes|in time"),
    "endless-size": (repeats(CHUNKED, b"0" * 5000), "no size"),
    "endless-extension": (repeats(CHUNKED + b"1;", b"x" * 5000), "no size"),
    "endless-trailers": (repeats(CHUNKED + b"0\r\n", b"X: y\r\n" * 100), "no answer in time"),
    "huge-length": (says(HEAD + b"Content-Length: 999999999999999\r\n\r\n" + FALSE), "no answer in time"),
    "huge-chunk": (says(CHUNKED + b"FFFFFFFF\r\n" + FALSE), "no answer in time"),
    "bomb": (says(answer(ZEROS, head=HEAD + b"Content-Encoding: gzip\r\n")), "longer than 1000000 bytes"),
    "half-a-body": (says(answer(FALSE)[:-1], then="closes"), "closed within the answer"),
    "half-a-chunk": (says(CHUNKED + b"5\r\nabc", then="closes"), "closed within the answer"),
    "length-and-chunks-that-lie": (says(HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 29\r\n\r\n" + FALSE + b"\r\n"), "no size"),
    "two-lengths": (says(HEAD + b"Content-Length: 29\r\nContent-Length: 2\r\n\r\n" + FALSE), "no number that can be meant"),
    "no-json": (says(answer(b"<html>")), "not a JSON object"),
    "deep-json": (says(answer(b"[" * 900_000)), "not a JSON object"),
    "another-version": (says(answer(FALSE).replace(b"1.1", b"1.7", 1)), "no HTTP answer"),
    "upgrade": (says(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + FALSE), "no HTTP answer|in time"),
}


@pytest.mark.parametrize(("hostile", "told"), HARM.values(), ids=HARM)
def test_harm_is_one_exception_for_one_request(hostile: Hostile, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LONGEST_BODY", 1_000_000)
    (found,) = run(outcomes(hostile))
    assert isinstance(found, Unavailable)
    with pytest.raises(Unavailable, match=f"^get persistentvolumes false: .*({told})"):
        raise found
    assert len(str(found)) < 400


@pytest.mark.parametrize(
    "more", [answer(FALSE), b"\r\n", b"x", answer(FALSE)[:30]], ids=["an-answer", "a-line", "a-byte", "half-an-answer"]
)
@pytest.mark.parametrize("at_once", [True, False])
def test_what_comes_unasked_is_never_an_answer_to_the_next_request(more: bytes, at_once: bool) -> None:
    body = b'{"metadata":{"name":"first"}}'
    pieces = (answer(body) + more,) if at_once else (answer(body), more)
    for found in run(outcomes(says(*pieces), count=10)):
        assert found == json.loads(body)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_comes_in_place_of_an_answer(seed: int) -> None:
    """Bytes of good answers changed, left out, doubled and cut anywhere: never another error than ours."""
    rng = random.Random(seed)
    good = [answer(FALSE), CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (len(FALSE), FALSE), HEAD + b"\r\n" + FALSE]
    good.append(answer(gzip.compress(FALSE, mtime=0), head=HEAD + b"Content-Encoding: gzip\r\n"))

    async def hostile(writer: asyncio.StreamWriter) -> AsyncIterator[bytes]:
        raw = bytearray(rng.choice(good))
        for _ in range(rng.randint(0, 3)):
            at = rng.randrange(len(raw))
            raw[at : at + rng.randint(0, 2)] = rng.choice(
                [b"", b"\r\n", b"\0", b"9", bytes([rng.randrange(256)]), bytes(raw[at : at + 30])]
            )
        while raw:
            size = rng.choice([1, 10, len(raw)])
            yield bytes(raw[:size])
            del raw[:size]
        if rng.random() < 0.7:
            writer.transport.close()

    for found in run(outcomes(hostile, count=15)):
        assert isinstance(found, dict | ApiError), repr(found)
