"""The page as a browser shows it: what it reads is what was written, nothing sticks out, and it is light or dark as its reader prefers."""

from __future__ import annotations

import json
import re
import struct
import zlib
from html import unescape
from pathlib import Path

import pytest

from hack.benchmarks.report.page import page
from hack.lib import browser
from hack.lib.browser import DARK, LIGHT, Browser
from hack.lib.failure import Failure
from tests.harness.not_tested import not_tested
from tests.harness.report import MEMORY, SCALE

pytestmark = [pytest.mark.slow]

# In a copy of the page without its policy, which forbids scripts.
ASKING = """<script>
const told = {svgs: document.querySelectorAll('svg').length, bars: [], outside: [], wide: document.documentElement.scrollWidth};
for (const svg of document.querySelectorAll('svg')) {
  const whole = svg.getBoundingClientRect();
  for (const text of svg.querySelectorAll('text, rect')) {
    const box = text.getBoundingClientRect();
    const isOut = box.left < whole.left - 1 || box.right > whole.right + 1 || box.bottom > whole.bottom + 1;
    if (isOut) told.outside.push(text.textContent || 'bar');
  }
}
for (const bar of document.querySelector('svg').querySelectorAll('rect')) told.bars.push(bar.getBoundingClientRect().width);
told.ink = getComputedStyle(document.querySelector('svg text')).fill;
document.title = JSON.stringify(told);
</script></body>"""


@pytest.fixture(scope="module")
def chromium() -> Browser:
    try:
        return browser.provide()
    except (Failure, OSError) as failure:
        not_tested("the page in a browser", str(failure))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "page.html"
    file.write_text(page([MEMORY, SCALE]))
    return file


def asked(chromium: Browser, written: Path) -> dict[str, object]:
    copy = written.with_name("asking.html")
    copy.write_text(re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", written.read_text()).replace("</body>", ASKING))
    title = re.search(r"<title>(\{.*?\})</title>", chromium.dom(copy))
    assert title
    found: dict[str, object] = json.loads(unescape(title[1]))
    return found


def test_bars_have_their_length_and_nothing_sticks_out(chromium: Browser, written: Path) -> None:
    told = asked(chromium, written)
    assert told["svgs"] == 4 and told["outside"] == []
    lengths = told["bars"]
    assert isinstance(lengths, list)
    assert [length / lengths[3] for length in lengths] == pytest.approx([51.2 / 200.9, 55.2 / 200.9, 51.7 / 200.9, 1.0], abs=0.01)


def test_the_page_is_read_as_it_was_written(chromium: Browser, written: Path) -> None:
    read = chromium.dom(written)
    for tag in ("section", "table", "tr", "td", "svg", "rect"):
        assert len(re.findall(f"<{tag}[ >]", read)) == len(re.findall(f"<{tag}[ >]", written.read_text())), tag


def pixels(png: bytes) -> set[tuple[int, ...]]:
    """The colours of a picture with 8 bits for each of red, green, blue and perhaps alpha."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert depth == 8 and kind in (2, 6)
    size = 3 if kind == 2 else 4
    at, packed = 8, b""
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            packed += png[at + 8 : at + 8 + length]
        at += 12 + length
    raw, line, before, found = zlib.decompress(packed), width * size, bytearray(width * size), set()
    for row in range(height):
        how, now = raw[row * (line + 1)], bytearray(raw[row * (line + 1) + 1 : (row + 1) * (line + 1)])
        for place in range(line):
            left = now[place - size] if place >= size else 0
            corner = before[place - size] if place >= size else 0
            now[place] = (now[place] + (0, left, before[place], (left + before[place]) // 2, paeth(left, before[place], corner))[how]) % 256
        found |= {tuple(now[place : place + 3]) for place in range(0, line, size)}
        before = now
    return found


def paeth(left: int, above: int, corner: int) -> int:
    guess = left + above - corner
    return min((left, above, corner), key=lambda value: abs(guess - value))


@pytest.mark.parametrize(
    ("scheme", "ground", "ours"),
    [(LIGHT, (0xFF, 0xFF, 0xFF), (0x1B, 0x6C, 0xA8)), (DARK, (0x0D, 0x11, 0x17), (0x4C, 0x9F, 0xDC))],
    ids=["light", "dark"],
)
def test_it_is_light_or_dark_as_its_reader_prefers(
    scheme: int, ground: tuple[int, ...], ours: tuple[int, ...], chromium: Browser, written: Path, tmp_path: Path
) -> None:
    found = pixels(chromium.picture(written, scheme=scheme, out=tmp_path / "picture.png", width=700, height=900))
    assert {ground, ours} <= found
    assert ((0xFF, 0xFF, 0xFF) in found) is (scheme == LIGHT)
