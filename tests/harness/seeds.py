"""How many seeds are played: by day enough to notice, at night all of them."""

import os

ALL_SEEDS = os.environ.get("CSI_NODE_SIDECAR_SEEDS") == "all"
