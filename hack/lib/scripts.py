"""Commands of hack/ as modules. They have no ending that an import would look for."""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

HACK = Path(__file__).resolve().parents[1]


def script(name: str) -> ModuleType:
    """`name` is that of the file. It is known to other imports from then on: dataclasses look for it there."""
    loader = SourceFileLoader(f"hack_{name.replace('-', '_')}", str(HACK / name))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module
