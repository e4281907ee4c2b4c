"""What deploy/base/README.md tells a new user to type, typed."""

from __future__ import annotations

import os

from tests.cluster.install_notebook import NOTEBOOK, commands_of_readme, play


def test_the_readmes_installation_goes_as_it_is_written_down(machine: None) -> None:
    commands = commands_of_readme()
    assert commands[0].startswith("hack/cluster up")
    assert commands[-1] == "hack/cluster down"
    assert play(commands, name=f"install-{os.getpid()}") == NOTEBOOK.read_text()
