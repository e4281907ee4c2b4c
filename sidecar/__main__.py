"""`python -m sidecar`: the same as the command `csi-node-sidecar`."""

import sys

from sidecar.cli import main

if __name__ == "__main__":
    sys.exit(main())
