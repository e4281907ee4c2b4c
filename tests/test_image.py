"""What hack/image makes: archives that engines can load, names that change with what goes in, and nothing lent that stays."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

import sidecar
from hack.images import base, buildah, cache, driver, oci, parts, pip_settings, report, sbom
from hack.lib.failure import Failure
from tests.harness.spdx import assert_is_spdx

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def furnished(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin/tool").write_text("#!/bin/sh\n")
    (root / "bin/tool").chmod(0o755)
    (root / "bin/sh").symlink_to("tool")
    os.link(root / "bin/tool", root / "bin/twin")
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    (root / "etc").mkdir()
    (root / "etc/secret").write_text("x")
    (root / "etc/secret").chmod(0o600)
    return root


def blobs(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}  # type: ignore[union-attr]


# --- archives -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("csi-node-sidecar:dev", "docker.io/library/csi-node-sidecar:dev"),
        ("someone/tool:v1", "docker.io/someone/tool:v1"),
        ("registry.example/tool", "registry.example/tool:latest"),
        ("registry.example/a/tool:v1", "registry.example/a/tool:v1"),
        ("localhost/tool:v1", "localhost/tool:v1"),
        ("localhost:5000/tool", "localhost:5000/tool:latest"),
    ],
)
def test_a_short_name_is_stored_as_a_kubelet_will_ask_for_it(short: str, full: str) -> None:
    assert oci.full_name(short) == full


def test_an_archive_is_whole(furnished: Path, tmp_path: Path) -> None:
    out = tmp_path / "image.tar"
    oci.write_archive(out, name="tool:dev", root=furnished, entrypoint=["/bin/tool"], command=["-x"], env={"A": "b=c"}, labels={"l": "1"})
    files = blobs(out)
    for name, content in files.items():
        if name.startswith("blobs/sha256/"):
            assert hashlib.sha256(content).hexdigest() == name.removeprefix("blobs/sha256/")
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (entry,) = json.loads(files["index.json"])["manifests"]
    assert entry["annotations"] == {
        "io.containerd.image.name": "docker.io/library/tool:dev",
        "org.opencontainers.image.ref.name": "dev",
    }
    manifest = json.loads(found(files, entry))
    (layer,) = manifest["layers"]
    config = json.loads(found(files, manifest["config"]))
    found(files, layer)
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]
    assert (config["os"], config["architecture"]) == ("linux", oci.architecture())
    assert config["config"] == {
        "Entrypoint": ["/bin/tool"],
        "Cmd": ["-x"],
        "Env": ["A=b=c"],
        "Labels": {"l": "1"},
        "WorkingDir": "/",
    }


def found(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    content = files["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
    assert len(content) == descriptor["size"]
    return content


def test_a_layer_keeps_modes_and_links_and_forgets_owners_and_times(furnished: Path, tmp_path: Path) -> None:
    out = tmp_path / "image.tar"
    oci.write_archive(out, name="tool", root=furnished)
    with oci.opened(out) as image, tarfile.open(fileobj=image.layers[0]) as layer:
        members = {member.name: member for member in layer}
    assert sorted(members) == ["bin", "bin/sh", "bin/tool", "bin/twin", "etc", "etc/secret", "tmp"]
    assert members["bin/sh"].issym() and members["bin/sh"].linkname == "tool"
    assert members["bin/twin"].islnk() and members["bin/twin"].linkname == "bin/tool"
    assert [members[name].mode for name in ("bin/tool", "etc/secret", "tmp")] == [0o755, 0o600, 0o1777]
    assert {(member.uid, member.gid, member.uname, member.mtime) for member in members.values()} == {(0, 0, "", 0)}


def test_equal_folders_give_equal_archives(furnished: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(furnished, other, symlinks=True)
    (other / "bin/twin").unlink()
    os.link(other / "bin/tool", other / "bin/twin")
    os.utime(other / "etc/secret", (1, 1))
    for name, root in (("one", furnished), ("two", other)):
        oci.write_archive(tmp_path / name, name="tool", root=root)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    (other / "etc/secret").write_text("y")
    oci.write_archive(tmp_path / "two", name="tool", root=other)
    assert (tmp_path / "one").read_bytes() != (tmp_path / "two").read_bytes()


def test_a_socket_in_the_folder_is_left_out(furnished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(furnished)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s")
        oci.write_archive(tmp_path / "image.tar", name="tool", root=furnished)
    with oci.opened(tmp_path / "image.tar") as image, tarfile.open(fileobj=image.layers[0]) as layer:
        assert "s" not in layer.getnames() and "bin/tool" in layer.getnames()


def test_no_half_made_archive_is_left(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        oci.write_archive(tmp_path / "image.tar", name="tool", root=tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


def test_a_derived_image_has_the_same_layer_and_one_more_and_another_start(furnished: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    oci.write_archive(first, name="tool:dev", root=furnished, entrypoint=["/bin/tool"], command=["-x"], env={"A": "b"})
    added = tmp_path / "added"
    (added / "bin").mkdir(parents=True)
    (added / "bin/more").write_text("more")
    oci.derive_archive(second, first, name="other:dev", entrypoint=["/bin/sh"], added=added, labels={"for": "tests"})
    assert [name for name in oci.names_in(second) if name not in oci.names_in(first)] == ["bin/more"]
    with oci.opened(first) as one, oci.opened(second) as two:
        assert two.config["rootfs"]["diff_ids"][:-1] == one.config["rootfs"]["diff_ids"]
        contents = [layer.read() for layer in two.layers]
        assert [f"sha256:{hashlib.sha256(content).hexdigest()}" for content in contents] == two.config["rootfs"]["diff_ids"]
        assert contents[:-1] == [layer.read() for layer in one.layers]
        oci.extract(two, tmp_path / "whole")
        assert (tmp_path / "whole/bin/more").read_text() == "more" and (tmp_path / "whole/bin/sh").readlink() == Path("tool")
        assert two.config["config"] == {"Entrypoint": ["/bin/sh"], "Env": ["A=b"], "Labels": {"for": "tests"}, "WorkingDir": "/"}
        assert two.names["io.containerd.image.name"] == "docker.io/library/other:dev"
        assert one.id != two.id


# --- what is built, and when anew -----------------------------------------------------------------------------------------


def test_the_dockerfile_is_understood() -> None:
    copied = buildah.copied_from_context(
        "FROM x AS a\nCOPY one two/ ./\nCOPY --chmod=755 three \\\n  /four\nFROM y\ncopy --from=a /x /x\nADD five .\n"
    )
    assert copied == ["one", "two/", "three", "five"]


def test_an_engine_is_sent_what_the_dockerfile_copies() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = buildah.copied_from_context((ROOT / "Dockerfile").read_text())
    assert copied and {name.strip("./") for name in copied} <= allowed


def test_what_nodes_run_is_built_without_the_simulation(context: Path) -> None:
    left_out = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith(("!", "#"))]
    assert left_out == ["*", "hack/*", "hack/sim", "**/__pycache__"]
    assert driver.SIMULATION == ROOT / "hack/sim" and (ROOT / "hack/sim/driver/serve.py").is_file()
    copied = {path.name for path in (context / "sidecar").iterdir()}
    assert {path.relative_to(ROOT / "sidecar").parts[0] for path in (ROOT / "sidecar").rglob("*.py")} - copied == {"simulation"}


def test_the_simulation_is_added_where_the_package_is(tmp_path: Path) -> None:
    package = driver.package_in(["etc/passwd", "opt/x/lib/python3.11/site-packages/sidecar/__init__.py", "opt/x/lib/sidecar/__init__.py"])
    assert package == Path("opt/x/lib/python3.11/site-packages/sidecar")
    driver.add_simulation(tmp_path, package)
    assert (tmp_path / package / "simulation/driver/serve.py").is_file()
    assert not list(tmp_path.rglob("__pycache__"))
    with pytest.raises(Failure, match="0 times"):
        driver.package_in(["etc/passwd"])


@pytest.fixture
def context(tmp_path: Path) -> Path:
    folder = tmp_path / "context"
    folder.mkdir()
    parts.copy_context(folder)
    return folder


@pytest.fixture
def bases(tmp_path: Path) -> Any:
    return base.Base(tmp_path, tmp_path, "python3=3.11\n")


def test_an_image_is_named_by_all_that_goes_in(context: Path, bases: Any) -> None:
    names = ["Dockerfile", *buildah.copied_from_context((context / "Dockerfile").read_text())]
    assert not list(context.rglob("__pycache__"))
    keys = {parts.sidecar_key(bases, context)}
    for name in names:
        changed = next(cache.files_in(context / name))
        changed.write_text(changed.read_text() + "# changed\n")
        keys.add(parts.sidecar_key(bases, context))
    keys.add(parts.sidecar_key(base.Base(bases.run, bases.build, "python3=3.12\n"), context))
    assert len(keys) == len(names) + 2


def test_an_image_is_not_named_by_what_stays_out(context: Path, bases: Any) -> None:
    key = parts.sidecar_key(bases, context)
    (context / "sidecar/__pycache__").mkdir()
    (context / "sidecar/__pycache__/cli.pyc").write_text("x")
    (context / "other").write_text("x")
    os.utime(context / "Dockerfile", (1, 1))
    assert parts.sidecar_key(bases, context) == key


def test_names_modes_and_links_count(tmp_path: Path) -> None:
    file = tmp_path / "file"

    def key() -> str:
        name: str = cache.key_of_files([tmp_path], below=tmp_path)
        return name

    file.write_text("x")
    keys = [key()]
    file.chmod(0o755)
    keys.append(key())
    file.rename(tmp_path / "other")
    keys.append(key())
    file.symlink_to("other")
    keys.append(key())
    assert len(set(keys)) == 4


def test_an_archive_is_made_once_and_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CSI_NODE_SIDECAR_CACHE", str(tmp_path))
    made: list[str] = []

    def make(out: Path, bench: Path) -> None:
        assert bench.is_dir()
        made.append(out.name)
        out.write_text("x")

    keys = [f"{number:012d}" for number in range(cache.KEPT + 2)]
    for number, key in enumerate(keys):
        archive = cache.archive("tool", key, make)
        assert cache.archive("tool", key, make) == archive
        os.utime(archive, (number, number))
    other = cache.archive("tool-two", keys[0], make)
    assert made == [f"tool-{key}.tar" for key in keys] + [other.name]
    assert sorted(file.name for file in archive.parent.glob("*.tar")) == [*(f"tool-{key}.tar" for key in keys[2:]), other.name]
    assert not list(archive.parent.glob(".building-*"))


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".building-of-yesterday").mkdir()
    with cache.workshop(tmp_path) as bench:
        assert list(tmp_path.iterdir()) == [bench]
    assert list(tmp_path.iterdir()) == []


def test_an_image_is_told_the_version_of_the_program_in_it(context: Path) -> None:
    assert parts.version_in(context) == sidecar.__version__
    (context / "sidecar/__init__.py").write_text('"""Some."""\n\n__version__ = "7.8.9"\n')
    assert parts.version_in(context) == "7.8.9"


def test_a_label_that_nobody_has_filled_is_left_out() -> None:
    labels = {"io.buildah.version": "1.28", "org.opencontainers.image.source": "", "org.opencontainers.image.version": "1.0.0"}
    assert buildah.said_labels(labels) == {"org.opencontainers.image.version": "1.0.0"}


# --- what is lent to a build ----------------------------------------------------------------------------------------------


def test_the_most_special_setting_of_pip_wins() -> None:
    listing = (
        "global.index-url='https://a'\n:env:.index-url='https://c'\ninstall.index-url='https://b'\nglobal.user='yes'\nlist.format='json'\n"
    )
    assert pip_settings.merged(listing) == {"index-url": "https://c"}


def test_pips_settings_are_lent_and_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    told = {"index-url": "https://me:secret@index.example/simple", "find-links": f"{wheels} /nowhere", "trusted-host": "a\nb"}
    monkeypatch.setattr(pip_settings, "read", lambda: told)
    bench = tmp_path / "bench"
    bench.mkdir()
    with pip_settings.as_mounts(bench) as mounts:
        assert mounts == [f"{bench}/pip.conf:/etc/pip.conf:ro", f"{wheels}:{wheels}:ro"]
        file = bench / "pip.conf"
        assert file.stat().st_mode & 0o777 == 0o600
        assert "index-url = https://me:secret@index.example/simple\n" in file.read_text()
        assert "trusted-host = a\n  b\n" in file.read_text()
    assert list(bench.iterdir()) == []


def test_only_empty_files_made_for_mounts_are_taken_out(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/pip.conf").touch()
    (tmp_path / "etc/hosts").write_text("127.0.0.1 localhost\n")
    buildah.take_back(tmp_path, ["/etc/pip.conf", "/etc/hosts", "/etc/missing"])
    assert [file.name for file in (tmp_path / "etc").iterdir()] == ["hosts"]


# --- what a person is told ------------------------------------------------------------------------------------------------


def hack_image(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "hack/image"), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, **environment}, timeout=60)


def test_an_unknown_image_is_refused_with_the_names_there_are(tmp_path: Path) -> None:
    done = hack_image("sidecars", CSI_NODE_SIDECAR_CACHE=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "image: error: no such image: sidecars; there are sidecar, driver, peer, busybox, pause and all\n"


def test_a_machine_without_debians_tools_is_told_what_else_would_do(tmp_path: Path) -> None:
    done = hack_image("busybox", CSI_NODE_SIDECAR_CACHE=str(tmp_path), PATH=str(tmp_path))
    assert done.returncode == 1
    assert "apt-get and dpkg-deb not found" in done.stderr and "container engine" in done.stderr


def test_root_is_asked_for_where_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Failure, match="needs root"), buildah.opened(tmp_path):
        pass


def test_sizes_are_told_by_folder() -> None:
    mib = 2**20
    files = {
        "usr/lib/python3.11/os.py": 2 * mib,
        "usr/lib/python3.11/json/tool.py": mib,
        "opt/x/lib/python3.11/site-packages/grpc/a.so": 5 * mib,
        "etc/passwd": 10,
        "top": 1,
    }
    assert report.by_folder(files) == [("grpc", 1, 5 * mib), ("/usr/lib/python3.11", 2, 3 * mib), ("all others", 2, 11)]


# --- what is in it, as SPDX -----------------------------------------------------------------------------------------------


def test_an_sbom_names_what_packages_say_of_themselves(tmp_path: Path) -> None:
    status = tmp_path / "var/lib/dpkg/status.d"
    status.mkdir(parents=True)
    (status / "libstdc++6").write_text(
        "Package: libstdc++6\nVersion: 1:12.2+x~1\nArchitecture: amd64\nMaintainer: Some One <one@example.org>\nDescription: a\n b\n"
    )
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/os-release").write_text('ID=debian\nVERSION_ID="12"\n')
    for name, version, told in (("Some_Thing", "1.0+local", "License: Own words\n more"), ("other", "2", "License-Expression: MIT")):
        folder = tmp_path / f"opt/x/lib/python3.11/site-packages/{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{told}\n\nText\n")
    document = sbom.document("tool:dev", digest="sha256:" + "a" * 64, found=sbom.components(tmp_path))
    assert_is_spdx(document)
    named = {package["name"]: package for package in document["packages"]}
    assert list(named) == ["tool:dev", "Some_Thing", "libstdc++6", "other"]
    assert [package["externalRefs"][0]["referenceLocator"] for package in document["packages"][1:]] == [
        "pkg:pypi/some-thing@1.0%2Blocal",
        "pkg:deb/debian/libstdc%2B%2B6@1%3A12.2%2Bx~1?arch=amd64&distro=debian-12",
        "pkg:pypi/other@2",
    ]
    assert named["libstdc++6"]["supplier"] == "Organization: Some One (one@example.org)"
    assert (named["other"]["licenseDeclared"], named["Some_Thing"]["licenseDeclared"]) == ("MIT", "NOASSERTION")
    assert named["Some_Thing"]["licenseComments"] == "The package's own words: Own words"
