"""A real control plane for tests: etcd and kube-apiserver with RBAC, and on request the controllers, the scheduler and kwok.

It starts, restarts and stops these programs, and writes what a kubelet would write (Node, CSINode). hack/control-plane builds the
programs; the sidecar and CSI drivers are started by `programs`.

    with ControlPlane(binaries("core", "kwok"), tmp_path, components=ALL_COMPONENTS) as cluster:
        cluster.add_node("node-1", {})
        cluster.apply(manifest)
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from hack.lib import servers
from hack.lib.command import Failure, tail
from hack.lib.kwok import KWOK_LABEL, KWOK_STAGES
from hack.lib.patience import LIMIT
from hack.lib.patience import ApiError as ApiError
from hack.lib.patience import until as until
from hack.lib.processes import REPOSITORY as REPOSITORY
from hack.lib.processes import Process, free_ports, stop_all

Json = dict[str, Any]

UPSTREAM_ROLE = REPOSITORY / "tests" / "e2e" / "upstream-role.yaml"
PROGRAM_OF = {
    "etcd": "etcd",
    "apiserver": "kube-apiserver",
    "controller-manager": "kube-controller-manager",
    "scheduler": "kube-scheduler",
    "kwok": "kwok",
}
ALL_COMPONENTS = tuple(PROGRAM_OF)
_OWN = {
    "apiserver": [
        "--etcd-compaction-interval=0",  # history ends when a test says so: compact()
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",  # pods need no token, as nothing runs in them
    ],
    "controller-manager": ["--pvclaimbinder-sync-period=1s", "--attach-detach-reconcile-sync-period=1s"],
}


class PortTaken(Failure):
    """Another program took the port after we had found it free: another try may succeed."""


def binaries(*parts: str) -> Path:
    """The folder with these parts. They are built first if necessary, which takes minutes once (see hack/control-plane --help)."""
    command = [sys.executable, str(REPOSITORY / "hack" / "control-plane"), *parts]
    # Its progress goes to our stderr, so that a first run is seen to work.
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise Failure(f"hack/control-plane {' '.join(parts)} failed (exit {done.returncode}); what it said is in stderr")
    return Path(done.stdout.strip())


class ControlPlane:
    """Servers on free loopback ports with all their data and logs in `work_dir`; start and stop, or use as a context manager.

    The programs are killed when the *thread* that called start() ends, however it ends: call it from a thread that lives on.
    `extra_args` are appended to a component's own, and a repeated flag wins: {"controller-manager": ["--node-monitor-grace-period=8s"]}.
    """

    def __init__(
        self,
        bin_dir: Path,
        work_dir: Path,
        *,
        components: Iterable[str] = ("etcd", "apiserver"),
        extra_args: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        unknown = ({*components} | extra_args.keys()) - PROGRAM_OF.keys()
        if unknown:
            raise Failure(f"unknown components {sorted(unknown)}: there are {', '.join(ALL_COMPONENTS)}")
        self._components = [name for name in PROGRAM_OF if name in {"etcd", "apiserver", *components}]
        self._bin_dir = bin_dir
        self._work_dir = work_dir
        self._extra_args = extra_args
        self._running: dict[str, Process] = {}
        self._admin_token = servers.new_token()
        self._opener: urllib.request.OpenerDirector | None = None
        self.url = ""
        self.etcd_url = ""
        self.kubeconfig = work_dir / "admin.kubeconfig"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- start and stop -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when everything that was asked for is at work."""
        self._write_files()
        try:
            self._start_etcd_and_apiserver(attempts=3)
            self._write_kubeconfig(self.kubeconfig, self._admin_token)
            for component in self._components[2:]:
                self._spawn(component)
            self._await_components()
        except BaseException:
            self._kill_all()
            raise

    def stop(self) -> None:
        """Ends all programs, etcd last, and leaves no process behind."""
        etcd = self._running.pop("etcd", None)
        stop_all([*self._running.values()])
        self._running.clear()
        stop_all([etcd] if etcd else [])

    def _kill_all(self) -> None:
        """After a failed start: a server that is still starting reacts slowly to SIGTERM, so all get SIGKILL."""
        for process in self._running.values():
            process.kill()
        self._running.clear()

    def stop_apiserver(self) -> None:
        """Stops it as in an upgrade: open watches get an end of stream."""
        self._running.pop("apiserver").stop()

    def kill_apiserver(self) -> None:
        """SIGKILL, as in a crash: connections break."""
        self._running.pop("apiserver").kill()

    def start_apiserver(self) -> None:
        """Starts it again, on the same data and the same port."""
        self._spawn("apiserver")
        self._await_ready()

    def copy_data(self, to: Path) -> None:
        """A backup of etcd, for which the servers stop for a moment."""
        with self._servers_stopped():
            shutil.copytree(self._work_dir / "etcd", to)

    def restore_data(self, copy: Path) -> None:
        """As after a disaster: all that was written since the backup is gone, and versions are counted on from there."""
        with self._servers_stopped():
            shutil.rmtree(self._work_dir / "etcd")
            shutil.copytree(copy, self._work_dir / "etcd")

    @contextlib.contextmanager
    def _servers_stopped(self) -> Iterator[None]:
        self.stop_apiserver()
        self._running.pop("etcd").stop()
        yield
        self._spawn("etcd")
        self.start_apiserver()

    def _start_etcd_and_apiserver(self, *, attempts: int) -> None:
        etcd_port, api_port = free_ports(2)
        self.etcd_url = f"http://127.0.0.1:{etcd_port}"
        self.url = f"https://127.0.0.1:{api_port}"
        try:
            self._spawn("etcd")
            self._spawn("apiserver")
            self._await_ready()
        except PortTaken:
            self._kill_all()
            if attempts == 1:
                raise
            self._start_etcd_and_apiserver(attempts=attempts - 1)

    def _spawn(self, component: str) -> None:
        program = self._bin_dir / PROGRAM_OF[component]
        if not program.exists():
            raise Failure(f"{program} is missing: run hack/control-plane {program.name}")
        command = [str(program), *self._arguments(component), *self._extra_args.get(component, ())]
        # Its HOME keeps a developer's own ~/.kube and ~/.kwok out of it.
        self._running[component] = Process(component, command, self._work_dir).start()

    def _arguments(self, component: str) -> list[str]:
        work = self._work_dir
        if component == "kwok":
            return [
                f"--kubeconfig={self.kubeconfig}",
                f"--config={work / 'kwok-stages.yaml'}",
                f"--manage-nodes-with-label-selector={KWOK_LABEL}=fake",
                "--node-port=0",  # no kubelet API: it would listen on all interfaces
                "--node-lease-duration-seconds=40",
            ]
        program, port = PROGRAM_OF[component], self.url.rpartition(":")[2]
        common = servers.arguments_of(program, work, etcd=self.etcd_url, host="127.0.0.1", port=port, kubeconfig=self.kubeconfig)
        return [*common, *_OWN.get(component, ())]

    def _write_files(self) -> None:
        self._work_dir.mkdir(parents=True, exist_ok=True)
        (self._work_dir / "kwok-stages.yaml").write_text(KWOK_STAGES)
        servers.write_secrets(self._work_dir, [(self._admin_token, "admin", "system:masters")])

    # --- readiness ------------------------------------------------------------------------------------------------

    def _await_ready(self) -> None:
        self._await("apiserver", "/readyz", "/api/v1/namespaces/default")  # which is made a moment after /readyz says yes

    def _await_components(self) -> None:
        """The controllers show that they work by an object each namespace gets; scheduler and kwok only by being alive."""
        if "controller-manager" in self._components:
            self._await("controller-manager", "/api/v1/namespaces/default/serviceaccounts/default")
        self._complain_about_the_dead()

    def _await(self, component: str, *paths: str) -> None:
        """Until all of these are answered, which shows that the component is at work."""
        last: Exception | None = None

        def answered() -> bool:
            nonlocal last
            self._complain_about_the_dead()
            try:
                for path in paths:
                    self._send("GET", path)
            except (OSError, http.client.HTTPException, ApiError) as error:
                last = error
                return False
            return True

        until(answered, lambda: f"{component} is ready ({last})", log=self._running[component].log)

    def _complain_about_the_dead(self) -> None:
        for component, process in self._running.items():
            if (code := process.child.poll()) is not None:
                last = tail(process.log)
                kind = PortTaken if "address already in use" in last else Failure
                raise kind(f"{component} ended with exit code {code}; {last}")

    # --- talking to it --------------------------------------------------------------------------------------------

    def request(self, method: str, path: str, body: Json | None = None, *, content_type: str = "application/json") -> Json:
        """Makes one call as the admin; `ApiError` carries the status of a refusal."""
        answer: Json = json.loads(self._send(method, path, body, content_type=content_type))
        return answer

    def metrics(self) -> str:
        """What the API server counts about itself."""
        return self._send("GET", "/metrics").decode()

    def history(self, path: str, *, since: str) -> list[Json]:
        """All changes of a collection after that resourceVersion, from a watch, so that no state is missed."""
        wire = self._send("GET", f"{path}?watch=true&resourceVersion={since}&timeoutSeconds=1")
        return [json.loads(line) for line in wire.splitlines()]

    def program(self, name: str) -> Path:
        """One of those that are built beside the servers."""
        return self._bin_dir / name

    def kubectl(self, *args: str, input: str | None = None) -> str:
        """Returns what kubectl prints; a failure is an error with its text."""
        command = [str(self.program("kubectl")), f"--kubeconfig={self.kubeconfig}", *args]
        environment = {**os.environ, "HOME": str(self._work_dir)}
        done = subprocess.run(command, input=input, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            raise Failure(f"kubectl {' '.join(args)} failed: {done.stderr.strip()}")
        return done.stdout

    def apply(self, manifest: str) -> None:
        self.kubectl("apply", "-f", "-", input=manifest)

    def serves(self, path: str) -> bool:
        """Whether a resource is served. A new type is missing at first, or the server asks to try again."""
        try:
            self.request("GET", path)
        except ApiError:
            return False
        return True

    def kubeconfig_for(self, *, namespace: str, service_account: str, bound_to: Json | None = None) -> Path:
        """A kubeconfig with a token of this service account, which must exist and has only the rights of its RBAC."""
        who = f"{namespace}.{service_account}" + (f".{bound_to['name']}" if bound_to else "")
        file = self._work_dir / f"{who}.kubeconfig"
        self._write_kubeconfig(file, self.token_for(namespace=namespace, service_account=service_account, bound_to=bound_to))
        return file

    def upstream_role(self) -> Path:
        """A kubeconfig with the rights of external-provisioner's sample manifest, and no others."""
        self.apply(UPSTREAM_ROLE.read_text())
        return self.kubeconfig_for(namespace="default", service_account="csi-provisioner")

    def token_for(self, *, namespace: str, service_account: str, bound_to: Json | None = None) -> str:
        """Valid for a day, and for as long as the pod exists to which it is bound; that pod says of which node it is."""
        spec = {"expirationSeconds": 86400, **({"boundObjectRef": bound_to} if bound_to else {})}
        wish = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = self.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token", wish)
        return str(answer["status"]["token"])

    def compact(self) -> int:
        """Makes etcd forget all history up to now; returns that revision.

        The API server still remembers recent changes in its watch cache: for a watch to be told 410 Gone,
        write something, compact, and restart the API server.
        """
        now = self._etcd("range", {"key": base64.b64encode(b"nothing").decode()})
        revision = int(now["header"]["revision"])
        self._etcd("compaction", {"revision": str(revision), "physical": True})
        return revision

    # --- what kubelets would write ---------------------------------------------------------------------------------

    def add_node(self, name: str, labels: Mapping[str, str] = MappingProxyType({}), *, managed: bool = True) -> None:
        """Adds a node that kwok keeps Ready; unmanaged it stays as created, like a machine whose kubelet never started."""
        resources = {"cpu": "64", "memory": "256Gi", "pods": "1000"}
        kwok = {KWOK_LABEL: "fake"} if managed else {}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **kwok, **labels},
            },
            "status": {"allocatable": resources, "capacity": resources},
        }
        self.request("POST", "/api/v1/nodes", node)

    def add_csinode(self, name: str, driver: str, node_id: str, topology_keys: Sequence[str]) -> None:
        """Adds what a kubelet writes when the driver has registered."""
        drivers = [{"name": driver, "nodeID": node_id, "topologyKeys": list(topology_keys)}]
        csinode = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": drivers}}
        self.request("POST", "/apis/storage.k8s.io/v1/csinodes", csinode)

    # --- HTTP ----------------------------------------------------------------------------------------------------

    def _send(self, method: str, path: str, body: Json | None = None, *, content_type: str = "application/json") -> bytes:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._admin_token}", "Content-Type": content_type, "Accept": "application/json"}
        return self._call(urllib.request.Request(self.url + path, data=data, headers=headers, method=method))

    def _etcd(self, verb: str, body: Json) -> Json:
        wire = urllib.request.Request(f"{self.etcd_url}/v3/kv/{verb}", data=json.dumps(body).encode(), method="POST")
        answer: Json = json.loads(self._call(wire))
        return answer

    def _call(self, wire: urllib.request.Request) -> bytes:
        if self._opener is None:
            certificates = ssl.create_default_context(cafile=str(servers.certificate(self._work_dir)))
            # Without the empty ProxyHandler a proxy from the environment would be asked for 127.0.0.1.
            self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=certificates))
        try:
            with self._opener.open(wire, timeout=LIMIT) as response:
                content: bytes = response.read()
                return content
        except urllib.error.HTTPError as refusal:
            with refusal:
                raise ApiError(refusal.code, _message_of(refusal.read())) from None

    def _write_kubeconfig(self, file: Path, token: str) -> None:
        file.touch(mode=0o600)
        file.write_text(servers.kubeconfig(self._work_dir, server=self.url, token=token))


def _message_of(body: bytes) -> str:
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return str(json.loads(body)["message"])
    return body.decode(errors="replace").strip()
