"""What `check` says: one line for each thing that is right, wrong or not known, for people and for programs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from sidecar.commands.check.findings import Findings, NotAsked
from sidecar.model.objects import Json
from sidecar.observe.sanitize import visible


class Level(Enum):
    OK = "ok"
    WARNING = "warning"
    """It works, and perhaps not as wished; or it could not be asked."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Line:
    check: str
    level: Level
    text: str
    remedy: str = ""
    asked: bool = True

    @property
    def message(self) -> str:
        return visible("; ".join(filter(None, (self.text, self.remedy))))


def ok(check: str, text: str) -> Line:
    return Line(check, Level.OK, text)


def warning(check: str, text: str, remedy: str) -> Line:
    return Line(check, Level.WARNING, text, remedy)


def failed(check: str, text: str, remedy: str) -> Line:
    return Line(check, Level.FAILED, text, remedy)


def not_asked(check: str, found: NotAsked) -> Line:
    return Line(check, Level.WARNING, f"could not be asked: {found.why}", asked=False)


_SIGNS = {Level.OK: "✓", Level.WARNING: "!", Level.FAILED: "✗"}
_PLAIN_SIGNS = {Level.OK: "ok", Level.WARNING: " !", Level.FAILED: " X"}


def as_text(lines: Sequence[Line], *, encoding: str) -> str:
    """What the terminal cannot show is written in ASCII."""
    signs = _SIGNS if encoding.lower().replace("-", "").replace("_", "") == "utf8" else _PLAIN_SIGNS
    width = max(len(line.check) for line in lines)
    rows = [f"{signs[line.level]} {line.check:{width}}  {line.message}" for line in lines]
    text = "\n".join([*rows, "", conclusion(lines)])
    return text if signs is _SIGNS else text.encode("ascii", "backslashreplace").decode()


def conclusion(lines: Iterable[Line]) -> str:
    """What could not be asked may be anything: who may ask for next to nothing is not told that nothing is wrong."""
    rows = list(lines)
    levels = [line.level for line in rows if line.asked]
    wrong, doubtful, unknown = levels.count(Level.FAILED), levels.count(Level.WARNING), len(rows) - len(levels)
    if not wrong and not doubtful and not unknown:
        return "Nothing is wrong."
    said = [
        f"{wrong} wrong" if wrong else f"nothing wrong{' in what could be asked' if unknown else ''}",
        *([f"{unknown} could not be asked"] if unknown else ()),
        *([f"{doubtful} to look at"] if doubtful else ()),
    ]
    return f"{', '.join(said)}, {levels.count(Level.OK)} as it should be.".capitalize()


def as_json(lines: Iterable[Line], found: Findings) -> Json:
    rows = tuple(lines)
    return {
        "driver": found.driver,
        "node": found.node,
        "askedFrom": "node" if found.on_node else "outside",
        "version": found.program,
        "ok": exit_code(rows) == 0,
        "checks": [
            {
                "check": line.check,
                "level": line.level.value,
                "asked": line.asked,
                "message": visible(line.text),
                "remedy": visible(line.remedy),
            }
            for line in rows
        ],
    }


def exit_code(lines: Iterable[Line]) -> int:
    return int(any(line.level is Level.FAILED for line in lines))
