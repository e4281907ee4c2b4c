"""Finds known misspellings, and small words that stand there twice, in the pages and the source of this repository.

    python -m hack.lib.spelling [FOLDER]

prints a line for each and ends with 1 if there is one. It knows the words in misspellings.txt, no others: what is not there is no fault.
A new one that was met is a new line there. In tests only comments and docstrings are read: their strings may be misspelt on purpose. The
same word twice is looked for in pages, outside code.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from hack.lib.links import FOREIGN, READ_THOUGH_HIDDEN, REPOSITORY

WORDS = Path(__file__).with_name("misspellings.txt")
ENDINGS = (".md", ".py", ".toml", ".yaml", ".yml")
LEFT_OUT = ("csi_proto",)
"""Definitions of others."""

_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
_TWICE = re.compile(r"\b(a|an|and|are|as|at|be|by|for|from|in|it|of|on|or|than|the|this|to|was|were|which|with)\s+\1\b", re.IGNORECASE)
_CODE = re.compile(r"^(```|~~~).*?^\1[^\n]*$|`[^`\n]*`|<!--.*?-->", re.MULTILINE | re.DOTALL)


def faults(root: Path) -> list[str]:
    """In the order of files and lines."""
    root = root.resolve()
    return [f"{file.relative_to(root)}:{line}: {fault}" for file in _files(root) for line, fault in sorted(_faults_of(file, root))]


@cache
def misspellings() -> dict[str, str]:
    """What is meant, by what is written."""
    return dict(line.split(": ", 1) for line in WORDS.read_text().splitlines())


def _files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        folders = path.relative_to(root).parts
        hidden = [part for part in folders if part.startswith(".") and part not in READ_THOUGH_HIDDEN]
        if hidden or not FOREIGN.isdisjoint(folders) or folders[0] in LEFT_OUT or not path.is_file():
            continue
        if path.suffix in ENDINGS or (not path.suffix and path.read_bytes().startswith(b"#!")):
            yield path


def _faults_of(file: Path, root: Path) -> Iterator[tuple[int, str]]:
    text = file.read_text()
    if file.suffix == ".md":
        text = _CODE.sub(lambda match: re.sub(r"[^\n]", "`", match[0]), text)
        yield from ((_line(text, match.start()), f"{' '.join(match[0].split())!r}") for match in _TWICE.finditer(text))
    if misspellings().keys().isdisjoint(_WORD.findall(text.lower())):
        return
    if file.suffix == ".py" and file.relative_to(root).parts[0] == "tests":
        text = _prose(text)
    for match in _WORD.finditer(text.lower()):
        if meant := misspellings().get(match[0]):
            yield _line(text, match.start()), f"{match[0]}: {meant}"


def _prose(source: str) -> str:
    """The comments and docstrings of a module, each on the line where it is."""
    written = source.split("\n")
    prose = [""] * len(written)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            prose[token.start[0] - 1] = token.string
    for node in ast.walk(ast.parse(source)):
        # A text that is a statement of its own is a docstring, or stands below what it explains.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            told = slice(node.lineno - 1, node.end_lineno)
            prose[told] = written[told]
    return "\n".join(prose)


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


if __name__ == "__main__":
    found = faults(Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY)
    for fault in found:
        print(fault)
    sys.exit(1 if found else 0)
