"""What tests of several commands share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.drain.served import Scene, served_scene


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with served_scene(tmp_path) as found:
        yield found
