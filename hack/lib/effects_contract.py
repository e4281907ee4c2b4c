"""An import contract of our own: effects are listed by file name, and every other file is pure.

A pure file neither awaits nor imports what waits, draws chance, reads a clock or touches the machine, not even by way of another file.
So a new file is pure until somebody lists it, which is the point: a list of pure files is forgotten when a file is added.
`lint-imports` runs this contract with the others (pyproject.toml).
"""

import ast
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class EffectsContract(Contract):
    """`effects` and `may_await` are patterns of module names, in which a star stands for anything, dots included."""

    root = fields.StringField()
    effects = fields.ListField(subfield=fields.StringField())
    may_await = fields.ListField(subfield=fields.StringField())
    forbidden_modules = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        root = str(self.root)
        modules = sorted(item for item in graph.modules if f"{item}.".startswith(f"{root}."))
        breaches = [
            *self._unused(graph, modules),
            *(line for module in modules if not _matches(module, _texts(self.effects)) for line in self._impurities(graph, module)),
        ]
        return ContractCheck(kept=not breaches, metadata={"breaches": breaches})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["breaches"]:
            output.print_error(line)

    def _unused(self, graph: ImportGraph, modules: list[str]) -> list[str]:
        """A file that is listed by its own name and is not there any more, or is pure by now, would leave its name to a later one."""
        named = [name for name in (*_texts(self.effects), *_texts(self.may_await)) if "*" not in name]
        gone = [f"{name} is listed, and there is no such file" for name in named if name not in modules]
        listed = [name for name in modules if name in _texts(self.effects)]
        return gone + [f"{name} is listed under `effects` and has none" for name in listed if not self._impurities(graph, name)]

    def _impurities(self, graph: ImportGraph, module: str) -> list[str]:
        effects, forbidden = _texts(self.effects), _texts(self.forbidden_modules)
        imported = sorted(graph.find_modules_directly_imported_by(module))
        found = [f"{module} imports {item}: list the file under `effects`, or hand the value in" for item in imported if item in forbidden]
        found += [f"{module} imports {item}, which has effects" for item in imported if _matches(item, effects)]
        if _awaits(module) and not _matches(module, _texts(self.may_await)):
            found.append(f"{module} awaits: list the file under `effects`, or return what is to be done")
        return found


def _awaits(module: str) -> bool:
    path = Path(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return any(isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith) for node in ast.walk(ast.parse(file.read_text())))


def _matches(module: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(module, pattern) for pattern in patterns)


def _texts(value: Any) -> list[str]:
    return [str(item) for item in value]
