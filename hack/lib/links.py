"""Checks that what the Markdown files of this repository point at exists: files, folders and headings. Asks no network.

    python -m hack.lib.links

writes a line for each broken pointer to stderr and ends with 1 if there is one. Two kinds of pointer are checked:

- links `[text](target)`, relative to the file they stand in, with the heading behind `#` as GitHub names it;
- paths in backticks. Prose moves more slowly than code, and a path that leads nowhere helps nobody. A word counts as a path if it
  ends with a known ending or begins with a folder of the repository; it may be relative to its own file or to the repository.

Addresses outside the repository are not looked at, nor is what stands in a code block.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDERS = (".ci/", ".github/", "csi_proto/", "deploy/", "hack/", "sidecar/", "tests/")
ENDINGS = (".json", ".md", ".py", ".sh", ".svg", ".toml", ".yaml")

_FENCE = re.compile(r"^```.*?^```[^\n]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(.+?)\1")
_LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
_OUTSIDE = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_PATH = re.compile(r"[\w./-]+")


def broken() -> list[str]:
    """A line for each pointer that leads nowhere, in the order of files and lines."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.splitlines()
    return [f"{name}:{line}: {fault}" for name in listed for line, fault in _faults(REPOSITORY / name)]


def anchor(heading: str) -> str:
    """The name that GitHub gives a heading: lower case, punctuation left out, a hyphen for each blank."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Of all headings of a file. GitHub numbers those that are equal to an earlier one: nothing is to point at them."""
    return frozenset(anchor(heading) for heading in _HEADING.findall(_FENCE.sub("", page.read_text())))


def _faults(page: Path) -> Iterator[tuple[int, str]]:
    # Blanks in place of what is left out keep the numbers of lines.
    text = _FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), page.read_text())
    for number, line in enumerate(text.splitlines(), 1):
        for target in _LINK.findall(_CODE.sub("``", line)):
            if fault := _link_fault(target, page):
                yield number, fault
        for _, code in _CODE.findall(line):
            if _is_path(code) and not any((base / code).exists() for base in (page.parent, REPOSITORY)):
                yield number, f"`{code}`: no such file"


def _link_fault(target: str, page: Path) -> str:
    if _OUTSIDE.match(target):
        return ""
    name, _, heading = target.partition("#")
    file = (page.parent / name).resolve() if name else page
    if not file.is_relative_to(REPOSITORY) or not file.exists():
        return f"({target}): no such file"
    if heading and (file.suffix != ".md" or heading not in anchors(file)):
        return f"({target}): no such heading"
    return ""


def _is_path(code: str) -> bool:
    """Patterns such as `tests/<room>` are none, nor is what lies on a node, such as `/var/lib/kubelet`."""
    if not _PATH.fullmatch(code) or code.startswith(("/", "-")):
        return False
    return code.startswith(FOLDERS) or code.endswith(ENDINGS)


if __name__ == "__main__":
    sys.exit("\n".join(broken()) or 0)
