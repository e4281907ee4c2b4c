"""From where it asks, and whose flags it checks, by the line and the place where it runs."""

from pathlib import Path

import pytest

from sidecar.commands import check
from sidecar.commands.check.asking_io import Place
from sidecar.commands.check.findings import Flags, NotAsked
from sidecar.config.config import Config
from sidecar.config.errors import UsageError
from tests.commands.check.found import WELL

IN_POD = {"NODE_NAME": "n1", "NAMESPACE": "storage", "POD_NAME": "sidecar-x"}
PROCESS = Flags("the running process", ("--node-deployment", "--csi-address=/csi/csi.sock"), IN_POD)


class Opened:
    async def close(self) -> None:
        """Nothing was opened."""


def asked(monkeypatch: pytest.MonkeyPatch, *words: str, process: Flags | NotAsked = PROCESS, **environ: str) -> tuple[Place, Config]:
    found: list[tuple[Place, Config]] = []

    async def open_doors(config: Config, *_: object, **__: object) -> Opened:
        configs.append(config)
        return Opened()

    async def look(_: object, place: Place) -> object:
        found.append((place, configs[-1]))
        return WELL

    configs: list[Config] = []
    monkeypatch.setattr(check, "open_doors", open_doors)
    monkeypatch.setattr(check, "look", look)
    monkeypatch.setattr(check, "flags_of_process", lambda: process)
    assert check.run([*words], environ) == 0
    return found[0]


def test_in_its_pod_it_asks_about_the_process_that_runs_at_the_socket_of_that(monkeypatch: pytest.MonkeyPatch) -> None:
    place, config = asked(monkeypatch, **IN_POD)
    assert (place.on_node, place.node, place.namespace, place.pod, place.flags) == (True, "n1", "storage", "sidecar-x", PROCESS)
    assert config.csi_address == "/csi/csi.sock"


def test_a_socket_that_is_named_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, "--csi-address=/other.sock", **IN_POD)[1].csi_address == "/other.sock"


def test_a_pod_without_a_sidecar_is_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not asked(monkeypatch, process=NotAsked("none"))[0].on_node


def test_with_a_kubeconfig_it_is_outside_and_looks_at_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place, _ = asked(monkeypatch, f"--kubeconfig={tmp_path}/config", "--driver=d")
    assert not place.on_node and isinstance(place.flags, NotAsked)
    assert asked(monkeypatch, f"--kubeconfig={tmp_path}/config", "--csi-address=/csi.sock")[0].on_node


def test_flags_that_stand_behind_it_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those by which the command finds its way are not among them."""
    flags = asked(monkeypatch, "--kubeconfig=/x", "--enable-capacity", "--worker-threads", "5")[0].flags
    assert isinstance(flags, Flags) and flags.words[-2:] == ("--enable-capacity=true", "--worker-threads=5")
    assert set(flags.environ) == {"NODE_NAME", "NAMESPACE", "POD_NAME"}
    assert asked(monkeypatch, "--kube-api-qps=3", "--timeout=1s", **IN_POD)[0].flags == PROCESS


def test_what_cannot_be_read_is_a_fault_of_the_line() -> None:
    with pytest.raises(UsageError, match="worker-threads"):
        check.run(["--worker-threads=many"], {})


def test_it_asks_without_pauses_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, **IN_POD)[1].kube_api_qps == 50
    assert asked(monkeypatch, "--kube-api-qps=2", **IN_POD)[1].kube_api_qps == 2
