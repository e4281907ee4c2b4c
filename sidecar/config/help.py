"""The text of `--help`: all flags in groups, each with its type and default in pflag's manner."""

from textwrap import wrap

from sidecar.config.table import TABLE, Row
from sidecar.config.words import quoted

HELP_WIDTH = 120
_HELP_COLUMN = 44
_NARROWEST = 24


def help_text(program: str, width: int = HELP_WIDTH) -> str:
    """In the order of the table."""
    groups: dict[str, list[str]] = {}
    for row in TABLE:
        groups.setdefault(row.group, []).append(_help_entry(row, width))
    sections = ("\n".join([f"{group}:", *entries]) for group, entries in groups.items())
    return "\n\n".join([f"Usage: {program} --node-deployment [flags]", *sections]) + "\n"


def _help_entry(row: Row, width: int) -> str:
    dashes = f"  -{row.shorthand}, --" if row.shorthand else "      --" if row.is_flag else "      "
    names = f"{dashes}{row.name} {row.kind.name if row.is_flag else ''}".rstrip()
    shown = row.kind.show(row.default)
    if row.kind.name == "string":
        shown = quoted(shown)
    default = f" (default\N{NO-BREAK SPACE}{shown})" if row.default else ""
    text = wrap(row.help + default, max(_NARROWEST, width - _HELP_COLUMN), break_on_hyphens=False)
    lines = [line.replace("\N{NO-BREAK SPACE}", " ") for line in text]
    if len(names) + 2 > _HELP_COLUMN:
        lines.insert(0, "")
    return "\n".join((names if index == 0 else "").ljust(_HELP_COLUMN if text else 0) + text for index, text in enumerate(lines))
