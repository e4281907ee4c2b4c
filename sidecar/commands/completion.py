"""`completion SHELL` prints what a shell has to be told; `__complete SHELL WORDS...` is what that then asks, for each word.

What may stand in a place is told by the tables that the parser reads. The cluster is not asked, so names of nodes and claims are not known.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from sidecar.commands.flags import Flag
from sidecar.commands.printing import PROGRAM
from sidecar.commands.table import BY_NAME, SHELLS, VERBS, Command, children, flags_of, meant
from sidecar.config.errors import UsageError
from sidecar.config.table import FLAGS, SHORTHANDS
from sidecar.config.words import quoted

FILES: Final = ":files"
"""In place of words: the name of a file may stand here."""
_OF_FILES: Final = frozenset({"kubeconfig", "csi-address", "journal-dir"})

_BASH: Final = """# bash completion of PROGRAM
_csi_node_sidecar() {
    local current=${COMP_WORDS[COMP_CWORD]} line
    [[ $current == "=" ]] && current=
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ $line == ":files" ]]; then
            compopt -o filenames 2>/dev/null
            while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$current")
        else
            COMPREPLY+=("$line")
        fi
    done < <("${COMP_WORDS[0]}" __complete bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _csi_node_sidecar PROGRAM
"""
_ZSH: Final = """#compdef PROGRAM
# zsh completion of PROGRAM
_csi_node_sidecar() {
    local -a found
    local line word
    for line in "${(@f)$("${words[1]}" __complete zsh "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        if [[ $line == ":files" ]]; then
            _files
            return
        fi
        [[ -n $line ]] && found+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
    done
    _describe PROGRAM found
}
if [[ $funcstack[1] == _PROGRAM ]]; then _csi_node_sidecar "$@"; else compdef _csi_node_sidecar PROGRAM; fi
"""
_FISH: Final = """# fish completion of PROGRAM
function __csi_node_sidecar_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in ($words[1] __complete fish $words[2..-1] "$current" 2>/dev/null)
        if test "$line" = ":files"
            __fish_complete_path "$current"
        else
            echo $line
        end
    end
end
complete -c PROGRAM -f -a '(__csi_node_sidecar_complete)'
"""
_VERBS: Final = tuple((verb, BY_NAME[verb].summary) for verb in VERBS)
_SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def script(words: Sequence[str]) -> str:
    """What to load into a shell. Raises UsageError."""
    if len(words) != 1 or words[0] not in SHELLS:
        what = f"{quoted(' '.join(words))} is no shell that can be told" if words else "the shell is missing"
        raise UsageError([f"{what}; known are {', '.join(SHELLS)}"])
    return _SCRIPTS[words[0]].replace("PROGRAM", PROGRAM)


def answer(words: Sequence[str]) -> str:
    """What a shell is told about its line: a candidate a line, for zsh and fish with what it is behind a tab."""
    shell, *line = words or ("",)
    if shell == "bash":  # it takes an equals sign for a word of its own
        line = _joined(line)
    found = list(candidates(line))
    if shell != "bash":
        return "".join(f"{word}\t{what}\n" if what else f"{word}\n" for word, what in found)
    behind = line[-1].partition("=")[0] + "=" if line and line[-1].startswith("--") and "=" in line[-1] else ""
    return "".join(f"{word.removeprefix(behind)}\n" for word, _ in found)


def candidates(line: Sequence[str]) -> Iterable[tuple[str, str]]:
    """The words that may stand in place of the last one, each with what it is."""
    *before, current = line or ("",)
    found = _values(before, current) if _flag_of(before, current) else _words(before, current)
    return [(word, what) for word, what in found if word == FILES or word.startswith(current)]


def _joined(line: Sequence[str]) -> list[str]:
    joined: list[str] = []
    glued = False
    for word in line:
        is_sign = word == "=" and bool(joined) and joined[-1].startswith("--") and "=" not in joined[-1]
        if glued or is_sign:
            joined[-1] += word
        else:
            joined.append(word)
        glued = is_sign
    return joined


# --- values -----------------------------------------------------------------------------------------------------------


def _flag_of(before: Sequence[str], current: str) -> str:
    """The flag whose value the last word is; empty: it is none."""
    if current.startswith("--") and "=" in current:
        return current[2:].partition("=")[0]
    name = _named(before[-1], before) if before else ""
    return name if name and _takes_a_word(name, before) else ""


def _named(word: str, before: Sequence[str]) -> str:
    if word.startswith("--"):
        return word[2:] if "=" not in word else ""
    letters = {**SHORTHANDS, **{flag.letter: flag.name for flag in _own(before)}}
    return letters.get(word[1:], "") if word.startswith("-") else ""


def _takes_a_word(name: str, before: Sequence[str]) -> bool:
    own = {flag.name: flag for flag in _own(before)}
    kind = own[name].kind if name in own else FLAGS[name].kind if name in FLAGS else None
    return kind is not None and kind.bare is None


def _values(before: Sequence[str], current: str) -> Iterable[tuple[str, str]]:
    name = _flag_of(before, current)
    if name in _OF_FILES and not current.startswith("--"):
        return [(FILES, "")]
    prefix = f"--{name}=" if current.startswith("--") else ""
    words = next((flag.words for flag in _own(before) if flag.name == name), ())
    return [(f"{prefix}{word}", "") for word in words]


# --- commands and flags -----------------------------------------------------------------------------------------------


def _words(before: Sequence[str], current: str) -> Iterable[tuple[str, str]]:
    command = meant(before)
    if current.startswith("-"):
        return _flags(command)
    if not before:
        return _VERBS
    said = [word for place, word in enumerate(before) if place and not word.startswith("-") and not _flag_of(before[:place], word)]
    if command is None or (command.name == before[0] and said and command.verb != "help"):
        return []
    if command.name == "help":
        return _last_words(children(said[0])) if said else _VERBS[1:]
    return _last_words(children(command.name)) or [(word, "") for word in command.words]


def _last_words(commands: Iterable[Command]) -> list[tuple[str, str]]:
    return [(command.name.partition(" ")[2], command.summary) for command in commands]


def _own(before: Sequence[str]) -> tuple[Flag, ...]:
    command = meant(before)
    if command is None:
        return ()
    return flags_of(command.name) if children(command.name) else command.flags


def _flags(command: Command | None) -> Iterable[tuple[str, str]]:
    """Those of `run` too, as every command takes them, but last, and without those that have no effect."""
    if command is not None and command.name in ("version", "help", "completion"):
        return []
    own = [(f"--{flag.name}", flag.help) for flag in (() if command is None else _own(command.name.split()))]
    first = () if command is None else command.of_run
    names = dict.fromkeys((*first, "help")) if command is not None and command.name != "run" else FLAGS
    return [*own, *((f"--{name}", FLAGS[name].help) for name in names if not FLAGS[name].ignored)]
