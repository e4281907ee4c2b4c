"""What pages of deploy/ tell a new user to type, typed."""

from __future__ import annotations

import pytest

from tests.cluster.readme_notebook import PAGES, commands_of, play


@pytest.mark.parametrize("name", PAGES)
def test_it_goes_as_it_is_written_down(machine: None, name: str) -> None:
    page = PAGES[name]
    commands = commands_of(page)
    assert "hack/cluster up" in commands[0]
    assert commands[-1] == "hack/cluster down"
    assert play(page) == page.notebook.read_text()
