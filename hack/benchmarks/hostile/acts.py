"""What is done while the program runs, from its start on. Each returns the attack's own figure, if it has one."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from hack.benchmarks.hostile import files
from hack.benchmarks.hostile.objects import waiting_claim
from hack.benchmarks.hostile.scene import Scene
from hack.lib.programs import within

Act = Callable[[Scene], float | None]
_MEGABYTE: Final = 1_000_000
_PATIENCE: Final = 60.0
_LONG: Final = 600.0
_LISTS: Final = "csi_node_sidecar_reflector_relists_total"


def stay(seconds: float) -> Act:
    """Nothing more is needed: the program is watched for so long."""

    def act(scene: Scene) -> float | None:
        scene.start()
        scene.rest(seconds)
        return None

    return act


def start_again(scene: Scene) -> float | None:
    """The list comes at each start, so a second one must live too."""
    scene.start()
    scene.rest(8.0)
    scene.restart()
    scene.rest(8.0)
    return None


def list_and_watch_the_largest(scene: Scene) -> float | None:
    """At the start, in a relist and in a burst of changes. Returns how many of them the program has named in its log."""
    scene.start()
    _until(scene, scene.sidecar.ready)
    scene.compact()
    _until(scene, lambda: all(scene.sidecar.metric(_LISTS, resource=kind) >= 2 for kind in ("persistentvolumeclaims", "persistentvolumes")))
    named, heard = len(large_ones_named(scene)), heard_of_large(scene)
    scene.change_largest()
    _until(scene, lambda: heard_of_large(scene) >= heard + named)
    return named


def heard_of_large(scene: Scene) -> float:
    """How often the API server has sent a large object."""
    return scene.sidecar.metric("csi_node_sidecar_large_objects_total")


def large_ones_named(scene: Scene) -> set[str]:
    return {line for line in scene.sidecar.output().splitlines() if '"An object is large"' in line}


def _until(scene: Scene, condition: Callable[[], bool]) -> None:
    """For as long as it takes, but not if the program has ended."""
    within(_LONG, lambda: scene.sidecar.child.poll() is not None or condition())


def count_series(scene: Scene) -> float | None:
    scene.start()
    scene.rest(15.0)
    return sum(not line.startswith("#") for line in scene.sidecar.page("/metrics")[1].splitlines())


def read_decisions(scene: Scene) -> float | None:
    """How many MB the debug page has, which holds what the driver said."""
    scene.start()
    scene.rest(15.0)
    return len(scene.sidecar.page("/debug/decisions")[1]) / _MEGABYTE


def connect_silently(count: int) -> Act:
    def act(scene: Scene) -> float | None:
        scene.start()
        scene.rest(3.0)
        with ExitStack() as stack:
            for _ in range(count):
                link = stack.enter_context(socket.socket())
                link.settimeout(0.2)
                try:
                    link.connect(("127.0.0.1", scene.sidecar.port))
                except OSError:
                    continue
            scene.rest(8.0)
            scene.driver.stop()  # what the process opens when its driver is gone needs files as well
            scene.rest(2.0)
            scene.driver.start()
            scene.rest(5.0)
        return None

    return act


def serve_another(scene: Scene) -> float | None:
    """Seconds that a claim of another namespace takes meanwhile."""
    scene.start()
    scene.rest(3.0)
    return max(_seconds_of(scene, f"waiting-{number}") for number in range(3))


def count_same_handles(scene: Scene) -> float | None:
    """PersistentVolumes that name what another one names."""
    scene.start()
    scene.rest(15.0)
    handles = [volume["spec"]["csi"]["volumeHandle"] for volume in scene.volumes()]
    return len(handles) - len(set(handles))


def count_elsewhere(scene: Scene) -> float | None:
    """PersistentVolumes that were stored although no node can use them."""
    scene.start()
    scene.rest(15.0)
    return len(scene.volumes())


def count_repetitions(scene: Scene) -> float | None:
    """How often the driver was asked for one and the same volume."""
    scene.start()
    scene.rest(15.0)
    calls = [call["name"] for call in scene.driver.recorded("CreateVolume")]
    return len(calls) / max(1, len(set(calls)))


def find_a_sparse_journal(scene: Scene) -> float | None:
    files.sparse_journal(scene.work)
    scene.start()
    scene.rest(3.0)
    return _seconds_of(scene, "waiting")


def find_links(scene: Scene) -> float | None:
    """Bytes of somebody else's file that changed."""
    victim = files.links_elsewhere(scene.work)
    before = victim.read_bytes()
    scene.start()
    scene.rest(3.0)
    _seconds_of(scene, "waiting")
    scene.restart()
    scene.rest(5.0)
    after = victim.read_bytes() if victim.exists() else b""
    return abs(len(after) - len(before)) + sum(one != other for one, other in zip(before, after, strict=False))


def find_forged_lines(scene: Scene) -> float | None:
    """Deletions of a volume that a PersistentVolume names, and reads of a Secret that no class names."""
    scene.start()
    scene.rest(3.0)
    _seconds_of(scene, "waiting")
    scene.end()
    (volume,) = scene.volumes()
    files.forged_line(scene.work, volume["metadata"]["name"])
    scene.restart()
    scene.rest(10.0)
    return len(scene.driver.recorded("DeleteVolume")) + scene.secrets_read()


def write_on_a_full_disk(scene: Scene) -> float | None:
    """Seconds from when there is room until the last of three claims has its volume. Nothing may be begun before, for it could not be
    recorded: else as long as anybody waits."""
    names = [f"waiting-{number}" for number in range(3)]
    with files.full_disk(scene.work) as place:
        scene.add_flags(f"--journal-dir={place}")
        scene.start()
        scene.rest(3.0)
        for name in names:
            scene.create_claim(waiting_claim(name))
        scene.rest(3.0)
        too_early = bool(scene.driver.recorded("CreateVolume"))
        (place / files.FILLER).unlink()
        begun = time.monotonic()
        within(_PATIENCE, lambda: all(map(scene.has_volume, names)) or scene.sidecar.child.poll() is not None)
        seconds = time.monotonic() - begun
        scene.end()
    return _PATIENCE if too_early else seconds


def _seconds_of(scene: Scene, name: str) -> float:
    """From a claim until its volume is stored."""
    begun = time.monotonic()
    scene.create_claim(waiting_claim(name))
    within(_PATIENCE, lambda: scene.has_volume(name) or scene.sidecar.child.poll() is not None)
    return time.monotonic() - begun
