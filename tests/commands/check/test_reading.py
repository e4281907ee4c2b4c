"""What is read of workloads: which container is ours, with which flags, and where its socket is on the node."""

from pathlib import Path
from typing import Any

import pytest

from sidecar.commands.check.asking_io import flags_of_process
from sidecar.commands.check.findings import Flags, NotAsked, Provisioner
from sidecar.commands.check.reading import OUR_IMAGE, provisioners, words_of
from sidecar.commands.check.who import meant_driver
from sidecar.model import names

Json = dict[str, Any]
DRIVER = "local.example"


def workload(*containers: Json, path: str = "/var/lib/kubelet/plugins/x") -> Json:
    volumes = [{"name": "plugin", "hostPath": {"path": path}}, {"name": "empty", "emptyDir": {}}]
    template = {"spec": {"containers": list(containers), "volumes": volumes, "serviceAccountName": "sa"}}
    return {"metadata": {"namespace": "ns", "name": "w"}, "spec": {"template": template}}


def container(image: str, *args: str, **more: Any) -> Json:
    return {"name": "c", "image": image, "args": list(args), "volumeMounts": [{"name": "plugin", "mountPath": "/csi"}], **more}


def read(obj: Json, image: str = OUR_IMAGE, drivers: tuple[str, ...] = (DRIVER,)) -> list[Provisioner]:
    return list(provisioners(obj, names.DAEMON_SET, drivers=drivers, image=image))


@pytest.mark.parametrize(
    ("image", "command", "ours"),
    [
        ("csi-node-sidecar:dev", "", True),
        ("registry.example:5000/a/csi-node-sidecar@sha256:0", "/csi-provisioner", True),
        ("csi-node-sidecar-driver:dev", "", None),
        ("registry.k8s.io/sig-storage/csi-provisioner:v6.3.0", "", False),
        ("topolvm-with-sidecar:1", "/csi-provisioner", False),
        ("registry.k8s.io/sig-storage/csi-snapshotter:v8", "", None),
        ("", "", None),
    ],
)
def test_which_container_provisions(image: str, command: str, ours: bool | None) -> None:
    found = read(workload(container(image, command=[command] if command else [])))
    assert [one.ours for one in found] == ([] if ours is None else [ours])


def test_an_image_of_another_name_is_found_by_that_name() -> None:
    obj = workload(container("mirror.example/storage/provisioner-ng:1"))
    assert read(obj) == []
    assert [one.ours for one in read(obj, "provisioner-ng")] == [True] == [one.ours for one in read(obj, "mirror.example/storage")]


def test_words_are_as_the_kubelet_gives_them() -> None:
    env = [
        {"name": "ADDRESS", "value": "/csi/csi.sock"},
        {"name": "NS", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    one = container("x", "run", "--csi-address=$(ADDRESS)", "$(NS)", "$(TOKEN)", "$(WHAT)", env=env)
    assert words_of(one, "ns") == ("--csi-address=/csi/csi.sock", "ns", "set-elsewhere", "$(WHAT)")
    assert words_of({"command": ["/csi-provisioner", "-v=5"], "args": ["--x"]}, "") == ("-v=5", "--x")


@pytest.mark.parametrize(
    ("args", "socket"),
    [
        (("--csi-address=/csi/csi.sock",), "/var/lib/kubelet/plugins/x/csi.sock"),
        (("--csi-address", "unix:///csi/a/csi.sock"), "/var/lib/kubelet/plugins/x/a/csi.sock"),
        (("-csi-address=unix:/csi/csi.sock",), "/var/lib/kubelet/plugins/x/csi.sock"),
        (("--csi-address=/csix/csi.sock",), ""),
        ((), ""),
    ],
    ids=str,
)
def test_where_the_socket_is_on_the_node(args: tuple[str, ...], socket: str) -> None:
    (one,) = read(workload(container("csi-node-sidecar", *args)))
    assert one.socket == socket


def test_the_driver_and_the_registrar_say_their_socket_too() -> None:
    beside = (container("driver", "--endpoint=unix:///csi/d.sock"), container("registrar", "--csi-address=/csi/r.sock"), container("log"))
    (one,) = read(workload(container("csi-node-sidecar"), *beside))
    assert [neighbour.socket.rpartition("/")[2] for neighbour in one.neighbours] == ["d.sock", "r.sock"]


@pytest.mark.parametrize(
    ("path", "mentioned"),
    [
        ("/plugins/local.example", True),
        ("/plugins/local.example/csi.sock", True),
        ("/plugins/not-local.example", False),
        ("/plugins/local.example.com", False),
    ],
)
def test_a_driver_is_mentioned_as_a_whole_word(path: str, mentioned: bool) -> None:
    (one,) = read(workload(container("csi-node-sidecar"), path=path))
    assert one.mentions == (frozenset({DRIVER}) if mentioned else frozenset())
    assert one.serves(DRIVER) is (True if mentioned else None)


def test_the_driver_is_known_where_all_of_ours_name_the_same() -> None:
    (named,) = read(workload(container("csi-node-sidecar"), path=f"/plugins/{DRIVER}"))
    (unnamed,) = read(workload(container("csi-node-sidecar")))
    (peer,) = read(workload(container("csi-provisioner")))
    assert meant_driver((named, named, peer)) == DRIVER
    assert meant_driver((named, unnamed)) == meant_driver((unnamed,)) == meant_driver((peer,)) == meant_driver(()) == ""


def test_upstream_is_central_unless_it_is_told_to_be_on_each_node() -> None:
    def central(*args: str) -> bool:
        (one,) = read(workload(container("csi-provisioner:v6", *args)))
        return one.central

    assert [central(), central("--node-deployment=false"), central("--node-deployment-base-delay=1s")] == [True] * 3
    assert [central("--node-deployment"), central("--node-deployment=true")] == [False] * 2


# --- the process beside -----------------------------------------------------------------------------------------------


def processes(folder: Path, *lines: tuple[str, ...]) -> Path:
    for number, words in enumerate(lines, start=1):
        (folder / str(number)).mkdir()
        (folder / str(number) / "cmdline").write_bytes("\0".join((*words, "")).encode())
    return folder


OURS = ("/opt/python3", "/opt/bin/csi-node-sidecar", "--node-deployment", "--csi-address=/csi/csi.sock")
ASKING = ("/opt/python3", "/opt/bin/csi-node-sidecar", "check")


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((OURS, ASKING), OURS[2:]),
        ((("/csi-provisioner", "--node-deployment"), ASKING), ("--node-deployment",)),
        ((("/pause",), (*OURS[:2], "run", *OURS[2:])), OURS[2:]),
        ((ASKING,), None),
        ((OURS, (*OURS, "--v=5")), None),
        ((("/pause",),), None),
        ((), None),
    ],
    ids=["ours", "by upstream's name", "with its verb", "itself alone", "two", "others", "nothing"],
)
def test_the_flags_of_the_process(tmp_path: Path, lines: tuple[tuple[str, ...], ...], found: tuple[str, ...] | None) -> None:
    flags = flags_of_process(processes(tmp_path, *lines))
    assert (flags.words if isinstance(flags, Flags) else None) == found
    assert isinstance(flags, Flags | NotAsked)
