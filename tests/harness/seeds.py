"""How many seeds are played: CSI_NODE_SIDECAR_SEEDS is `short` (a few that always pass or fail together), `all` or `night`."""

import os

TIER = os.environ.get("CSI_NODE_SIDECAR_SEEDS", "short")
ALL_SEEDS = TIER != "short"


def seeds(short: int) -> range:
    return range(80 if ALL_SEEDS else short)
