"""Words for messages about a command line."""

from collections.abc import Iterable


def quoted(text: str) -> str:
    return f'"{text}"'


def closest(word: str, known: Iterable[str]) -> str:
    """The known word that was most likely meant; empty if none is similar."""
    import difflib  # imported here, so that a program that runs does not have it in memory

    spellings = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), spellings, n=1, cutoff=0.6)
    return spellings[found[0]] if found else ""
