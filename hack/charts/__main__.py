"""Started by hack/chart, which has the usage."""

from __future__ import annotations

import sys

from hack.charts import command

sys.exit(command.run(is_check="--check" in sys.argv[1:]))
