"""Finds the cluster, context and user in one kubeconfig or several, as kubectl merges them."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from sidecar.errors import Fatal
from sidecar.kube.mounted_files_io import trouble

_CURRENT: Final = "current-context"
_PARTS: Final = {"clusters": "cluster", "contexts": "context", "users": "user"}
_PLUGINS: Final = ("exec", "auth-provider")
_MOST_NAMES: Final = 8
_NO_KUBECONFIG: Final = "cannot be used: it is empty, or its content is no kubeconfig"


@dataclass(frozen=True, slots=True)
class Entry:
    """A cluster, context or user."""

    name: str
    value: Mapping[str, Any]
    file: Path
    """Relative paths begin in its folder."""

    def text(self, key: str) -> str:
        value = self.value.get(key)
        return "" if value is None else str(value)

    def path(self, key: str) -> str:
        return os.path.normpath(self.file.absolute().parent / self.text(key)) if self.text(key) else ""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What one context leads to. Whose user is not there is nobody, and is asked for no credentials."""

    context: Entry
    cluster: Entry
    user: Entry

    @property
    def plugin(self) -> str:
        return next((key for key in _PLUGINS if self.user.value.get(key)), "")


def chosen(paths: str, wanted: str) -> Chosen:
    """What that context leads to, or the current one. `Fatal` if there is none."""
    files = _listed(paths)
    try:
        if not any(map(Path.is_file, files)):
            raise Fatal(f"kubeconfig {paths}: {'is a directory' if any(map(Path.is_dir, files)) else 'no such file'}")
        merged, current = _merged(files)
        context = _context(paths, merged["contexts"], wanted, current)
        cluster = merged["clusters"].get(context.text("cluster"))
        if cluster is None:
            has_not = f'has no cluster "{context.text("cluster")}", which its context "{context.name}" names'
            raise Fatal(f"kubeconfig {paths} cannot be used: it {has_not}")
        nobody = Entry(context.text("user"), {}, context.file)
        return Chosen(context, cluster, merged["users"].get(context.text("user"), nobody))
    except OSError as error:
        raise Fatal(f"kubeconfig {paths}: {trouble(error)}") from error
    except yaml.YAMLError as error:
        raise Fatal(f"kubeconfig {paths} cannot be used: {_where(error)}") from error
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:  # what an unexpected structure provokes
        raise Fatal(f"kubeconfig {paths} {_NO_KUBECONFIG}") from error


def _listed(paths: str) -> list[Path]:
    # `os.path`, because a Path would raise over a list that is too long for a name, and over a home that nobody has.
    whole = os.path.expanduser(paths)  # noqa: PTH111
    listed = [paths] if os.path.isfile(whole) else [path for path in paths.split(os.pathsep) if path]  # noqa: PTH113
    return [Path(os.path.expanduser(path)) for path in listed]  # noqa: PTH111


def _merged(files: Iterable[Path]) -> tuple[dict[str, dict[str, Entry]], str]:
    """As kubectl merges files: of each name the first one that has it counts, and the first current context that is set."""
    merged: dict[str, dict[str, Entry]] = {part: {} for part in _PARTS}
    current = ""
    for file in files:
        content = yaml.safe_load(file.read_bytes()) if file.exists() else None
        if content is None:
            continue
        for part, one in _PARTS.items():
            for found in content.get(part) or ():
                entry = Entry(str(found["name"]), dict(found.get(one) or {}), file)
                merged[part].setdefault(entry.name, entry)
        current = current or str(content.get(_CURRENT) or "")
    return merged, current


def _context(paths: str, contexts: Mapping[str, Entry], wanted: str, current: str) -> Entry:
    names = sorted(contexts)
    if not names:
        raise Fatal(f"kubeconfig {paths} {_NO_KUBECONFIG}: it has no context")
    if (wanted or current) in contexts:
        return contexts[wanted or current]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    known = f"its contexts are {', '.join(names[:_MOST_NAMES])}{more}"
    if not wanted and not current:
        raise Fatal(f"kubeconfig {paths} cannot be used: it says of no context that it is the current one; {known}")
    raise Fatal(f'kubeconfig {paths} has no context "{wanted or current}"; {known}')


def _where(error: yaml.YAMLError) -> str:
    """Without the line itself, which may be a secret's."""
    mark = getattr(error, "problem_mark", None)
    return f"line {mark.line + 1} is no YAML: {getattr(error, 'problem', '')}" if mark else "it is no YAML"
