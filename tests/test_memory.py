"""What keeps an idle instance small: what it loads, what it keeps of each object, and how much it holds while it lists.

Absolute figures beside the peer's, on a real API server, are what `hack/bench memory` measures.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from hack.benchmarks.pod import compile_bytecode, image_environment
from hack.lib import programs
from hack.lib.control_plane import until
from sidecar.kube.api import CLAIMS, CLASSES, VOLUMES
from tests.harness.memory import Cluster, Held, held_by, some_claim, some_volume

IDLE_LIMIT_MIB = 53.0
JUDGING_LIMIT_MIB = 4.2
"""More than without drain decisions. Today 3.7."""
# Today 2.3 kB for a claim that this node may write, and 1.9 kB for a volume of this node.
OWN_LIMIT_BYTES = 3_000
MOST_MODULES = 466
"""Today 457."""
NO_API = "http://127.0.0.1:1"
# The program as it is, which at its end says what it had loaded.
TELLING = "import sys; from sidecar.cli import main; code = main(); print('modules:', *sys.modules); sys.exit(code)"


@dataclass(frozen=True)
class Life:
    """One start, as in the image, with a driver and an API server that refuses connections: every room is joined, every request fails."""

    modules: frozenset[str]
    resident_mib: float


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    compile_bytecode()
    return _lived(tmp_path_factory.mktemp("life"))


def _lived(work: Path, *flags: str) -> Life:
    with programs.OurDriver(work, node="n1") as driver:
        args = [f"--master={NO_API}", "--enable-capacity", "--capacity-ownerref-level=-1", *flags]
        environ = {"NAMESPACE": "default", **image_environment()}
        sidecar = programs.Sidecar(work, node="n1", address=driver.socket, kubeconfig="", args=args, environ=environ)
        sidecar.command[1:3] = ["-c", TELLING]
        with sidecar:
            until(lambda: sidecar.output().count("List and watch will be tried again") >= 3, "every cache has asked", seconds=30)
            assert sidecar.page("/metrics")[0] == 200
            resident = _resident_mib(sidecar.child.pid)
        print("resident MiB:", resident)
        assert sidecar.child.returncode == 0, sidecar.output()
    told = sidecar.output().splitlines()[-1]
    print("modules:", len(told.split()) - 1)
    assert told.startswith("modules: ")
    return Life(frozenset(told.split()[1:]), resident)


def _resident_mib(pid: int) -> float:
    """Zero where the kernel does not tell."""
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")), 0.0)


def test_a_start_is_a_whole_one(life: Life) -> None:
    """Or the tests below would look at a program that had not loaded anything yet."""
    assert {
        "sidecar.kube.client",
        "sidecar.csi.driver",
        "sidecar.capacity.controller",
        "sidecar.observe.server",
        "grpc.aio",
    } <= life.modules


@pytest.mark.parametrize(
    "unwanted",
    [
        pytest.param("kubernetes", id="the-library-that-reads-kubeconfigs"),
        pytest.param("pydantic", id="nor-what-that-would-bring"),
        pytest.param("aiohttp", id="nor-a-second-http"),
        pytest.param("hack.sim", id="the-simulation"),
        pytest.param("sidecar.commands.explain", id="another-command"),
        pytest.param("sidecar.commands.release_finalizers", id="nor-the-way-back"),
        pytest.param("sidecar.commands.check", id="nor-the-one-that-checks"),
        pytest.param("sidecar.commands.node", id="nor-this-one"),
        pytest.param("sidecar.commands.leftovers", id="nor-that"),
        pytest.param("sidecar.commands.label", id="nor-the-one-for-claims"),
        pytest.param("sidecar.commands.uninstall", id="nor-the-last"),
        pytest.param("difflib", id="what-finds-the-word-that-was-meant"),
        pytest.param("argparse", id="a-second-reader-of-flags"),
        pytest.param("prometheus_client", id="the-library-that-metrics-are-compared-with"),
        pytest.param("http.server", id="nor-its-web-server"),
        pytest.param("urllib.request", id="nor-a-client"),
        pytest.param("email", id="what-reads-dates-of-mail"),
        pytest.param("html", id="what-writes-pages"),
        pytest.param("sidecar.config.help", id="what-writes-help"),
        pytest.param("uuid", id="what-reads-the-addresses-of-network-cards"),
        pytest.param("platform", id="what-describes-the-machine"),
        pytest.param("yaml", id="what-reads-kubeconfigs-beside-that-library"),
        pytest.param("sidecar.drain", id="drain-decisions-that-nobody-asked-for"),
    ],
)
def test_the_program_does_not_load(unwanted: str, life: Life) -> None:
    assert [name for name in sorted(life.modules) if name == unwanted or name.startswith(f"{unwanted}.")] == []


def test_a_start_loads_no_more_than_it_does_today(life: Life) -> None:
    """Each module is a tenth of a millisecond and more, at each start on each node."""
    assert len(life.modules) <= MOST_MODULES


def test_where_nothing_is_provisioned_nothing_is_loaded_that_provisions() -> None:
    flags = '["--node-deployment", "--provisioning=false", "--drain-report"], {"NODE_NAME": "n"}'
    loaded = _loaded_after(
        f"import sidecar.process; from sidecar.config.parse import parse; sidecar.process.load_rooms(parse({flags}).config)"
    )
    unwanted = (
        "sidecar.wiring",
        "sidecar.provisioning.rules",
        "sidecar.provisioning.controller",
        "sidecar.ownership.rules",
        "sidecar.rights",
    )
    assert "sidecar.drain.watches" in loaded and loaded.isdisjoint(unwanted)


def test_drain_decisions_load_what_the_gates_of_others_need_only_for_those() -> None:
    """Who builds no gates looks after no others, and hardly any of those that do ever judges another node."""
    always, with_gates = _loaded_after("import sidecar.drain.watches"), _loaded_after("import sidecar.drain.gate.takeover_io")
    assert {"sidecar.drain.gate.takeover", "sidecar.drain.gate.neighbour_marks_io"} <= with_gates - always
    assert "sidecar.drain.judgement.assess" in always & with_gates
    assert {"sidecar.drain.facts.cluster_listing", "sidecar.drain.publish.from_outside"}.isdisjoint(always | with_gates)


def _loaded_after(statement: str) -> set[str]:
    told = subprocess.run(
        [sys.executable, "-c", f"import sys; {statement}; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(told.stdout.split())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")
def test_an_idle_instance_stays_within_its_budget(life: Life) -> None:
    assert 0 < life.resident_mib <= IDLE_LIMIT_MIB


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")
def test_what_drain_decisions_load_stays_within_its_budget(life: Life, tmp_path: Path) -> None:
    judging = _lived(tmp_path, "--drain-report", "--node-drain-policy=NoSchedule")
    assert "sidecar.drain.judgement.assess" in judging.modules
    assert 0 < judging.resident_mib - life.resident_mib <= JUDGING_LIMIT_MIB


# --- what is kept of objects ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nothing() -> Held:
    held_by(Cluster())  # once to warm up: what is imported or cached at first use belongs to nobody
    return held_by(Cluster())


def test_nothing_is_kept_of_objects_that_are_not_ours(nothing: Held) -> None:
    """Of another driver, or of ours on another node. Thousands of them must not leave a trace."""
    for claim, volume in (
        (some_claim(driver="other", node="bar"), some_volume(driver="other")),
        (some_claim(node="bar"), some_volume(node="bar")),
    ):
        held = held_by(Cluster(persistentvolumeclaims=(claim, 2_500), persistentvolumes=(volume, 2_500)))
        assert (held.claims, held.volumes) == (0, 0)
        assert (held.after - nothing.after) / 5_000 < 16


def test_what_is_kept_of_our_own_objects_is_small(nothing: Held) -> None:
    """A claim that we may write is the dearest: it is kept whole, though without the fields' history."""
    waiting = held_by(Cluster(persistentvolumeclaims=(some_claim(), 1_000)))
    assert waiting.claims == 1_000
    assert (waiting.after - nothing.after) / 1_000 < OWN_LIMIT_BYTES
    living = held_by(Cluster(persistentvolumes=(some_volume(), 1_000)))
    assert living.volumes == 1_000
    assert (living.after - nothing.after) / 1_000 < OWN_LIMIT_BYTES


def test_what_a_list_takes_while_it_lasts_is_a_page_and_not_the_list() -> None:
    """Memory that was once taken for a whole list is hardly ever given back to the system."""
    claim, volume = some_claim(node="bar"), some_volume(node="bar")
    short, long = (held_by(Cluster(persistentvolumeclaims=(claim, count), persistentvolumes=(volume, count))) for count in (1_000, 3_000))
    assert (long.peak - short.peak) / 4_000 < 300


def test_lists_are_asked_for_in_pages() -> None:
    cluster = Cluster(persistentvolumeclaims=(some_claim(node="bar"), 2_000))
    held_by(cluster)
    assert cluster.pages.count(CLAIMS.plural) >= 4
    assert cluster.pages.count(VOLUMES.plural) == cluster.pages.count(CLASSES.plural) == 1
