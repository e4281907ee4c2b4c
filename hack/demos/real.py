"""The demo on a real control plane: builds it if need be, starts it in a temporary folder, and lets the demo run there.

    hack/demo --real

The sidecars get the rights of upstream's sample role and no others. It needs a clone, because the package holds neither this nor what
builds the control plane.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from pathlib import Path

from hack.lib.control_plane import ALL_COMPONENTS, REPOSITORY, ControlPlane, ControlPlaneError, binaries
from hack.lib.kwok import KWOK_LABEL
from hack.sim.demo import __main__ as demo

ROLE = REPOSITORY / "tests" / "e2e" / "upstream-role.yaml"


def main(arguments: list[str]) -> int:
    # kill(1) must stop what we started, like Ctrl-C does, also before the demo takes signals into its own hands.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        return in_temporary_folder(binaries("core", "kwok"), arguments)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except ControlPlaneError as error:
        print(f"hack/demo: {error}", file=sys.stderr)
        return 1


def in_temporary_folder(bin_dir: Path, arguments: list[str]) -> int:
    """Kept when the demo fails, for the sake of the logs."""
    work, code = Path(tempfile.mkdtemp(prefix="csi-demo-plane-")), 0
    try:
        code = on_real_control_plane(bin_dir, work, arguments)
    finally:
        if code == 1:
            print(f"what the control plane said is kept in {work}", flush=True)
        else:
            shutil.rmtree(work, ignore_errors=True)
    return code


def on_real_control_plane(bin_dir: Path, work: Path, arguments: list[str]) -> int:
    print("starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok", flush=True)
    with ControlPlane(bin_dir, work, components=ALL_COMPONENTS) as plane:
        plane.apply(ROLE.read_text())
        rights = plane.kubeconfig_for(namespace="default", service_account="csi-provisioner")
        where = [f"--kubeconfig={plane.kubeconfig}", f"--sidecar-kubeconfig={rights}", f"--node-label={KWOK_LABEL}=fake"]
        if "--keep" in arguments:
            print(f"kubectl of the same version is {bin_dir / 'kubectl'}", flush=True)
        return demo.main([*where, *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
