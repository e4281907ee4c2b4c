"""Calls to the simulated driver, and its refusals."""

from typing import Any

import pytest

from hack.sim.driver.local_driver import MIB
from sidecar.csi.api import Capability, CreateRequest
from sidecar.csi.outcome import Code, DriverError

WRITER = Capability("SINGLE_NODE_WRITER", fs_type="ext4")


def wanted(name: str = "pvc-1", required: int = MIB, **fields: Any) -> CreateRequest:
    return CreateRequest(**{"name": name, "required_bytes": required, "capabilities": (WRITER,), **fields})


def refusal(act: Any, *args: Any, **kwargs: Any) -> Code:
    with pytest.raises(DriverError) as caught:
        act(*args, **kwargs)
    return caught.value.code
