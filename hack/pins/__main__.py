"""Started by hack/renew-constraints, which has the usage."""

from __future__ import annotations

import argparse
import sys

from hack.pins import command

sys.argv[0] = "renew-constraints"  # by which progress is told
parser = argparse.ArgumentParser(prog="hack/renew-constraints", add_help=False)
parser.add_argument("--check", action="store_true")
parser.add_argument("--keep-versions", action="store_true")
sys.exit(command.run(parser.parse_args()))
