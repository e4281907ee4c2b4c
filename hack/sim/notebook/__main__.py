"""python -m hack.sim.notebook [--rewrite] FILE …: print what the commands do now, or write it into the files."""

import argparse
import logging
import sys
from pathlib import Path

from hack.sim.notebook.play import played


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.sim.notebook", description=__doc__)
    parser.add_argument("--rewrite", action="store_true", help="write into the files instead of printing")
    parser.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args()
    logging.getLogger("sidecar").addHandler(logging.NullHandler())  # the transcript says it all
    for file in options.files:
        now = played(file.read_text())
        if options.rewrite:
            file.write_text(now)
        else:
            sys.stdout.write(now)
    return 0


if __name__ == "__main__":
    sys.exit(main())
