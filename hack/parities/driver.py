"""The CSI driver of the comparison: it records every request completely, and answers as the parameters of the class say.

    python hack/parities/driver.py '{"endpoint": SOCKET, "name": NAME, "calls": FILE, "segments": {}, "capabilities": ["CLONE_VOLUME"]}'

Of secrets it writes the keys and a digest of each value, so that they can be compared and not be read.
Parameters of a class that speak to it begin with `answer-`; without any, it makes what was asked for, for its own node.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from csi_proto import csi_pb2 as pb

OWN_NODE = "node-a"
MIB = 2**20
FREE = 2**60
THREADS = 32


class Refusal(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Driver(grpc.GenericRpcHandler):
    """One node's. What was made is remembered only to say how its deletion is answered."""

    def __init__(self, *, name: str, segments: Mapping[str, str], capabilities: Sequence[str], calls: str) -> None:
        self._own, self._calls = dict(segments), Path(calls)
        kinds = ["CONTROLLER_SERVICE", *(["VOLUME_ACCESSIBILITY_CONSTRAINTS"] if segments else [])]
        plugin = pb.GetPluginCapabilitiesResponse(capabilities=[{"service": {"type": kind}} for kind in kinds])
        controller = pb.ControllerGetCapabilitiesResponse(capabilities=[{"rpc": {"type": kind}} for kind in sorted(capabilities)])
        node = pb.NodeGetInfoResponse(node_id=OWN_NODE, accessible_topology={"segments": segments} if segments else None)
        self._answers: Mapping[str, Callable[[Any], Message]] = {
            "GetPluginInfo": lambda _: pb.GetPluginInfoResponse(name=name, vendor_version="1"),
            "GetPluginCapabilities": lambda _: plugin,
            "Probe": lambda _: pb.ProbeResponse(),
            "ControllerGetCapabilities": lambda _: controller,
            "CreateVolume": self._create_volume,
            "DeleteVolume": self._delete_volume,
            "GetCapacity": self._get_capacity,
            "NodeGetInfo": lambda _: node,
        }
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._parameters: dict[str, Mapping[str, str]] = {}
        self._lock = threading.Lock()

    def service(self, details: Any) -> Any:
        method = details.method.rpartition("/")[2]
        if method not in self._answers:
            return None

        def serve(message: Message, context: Any) -> Message:
            try:
                answer = self._answers[method](message)
            except Refusal as refusal:
                self._note(method, message, refusal.code)
                context.abort(grpc.StatusCode[refusal.code], refusal.message)
                raise
            self._note(method, message, "OK")
            return answer

        return grpc.unary_unary_rpc_method_handler(
            serve,
            request_deserializer=getattr(pb, f"{method}Request").FromString,
            response_serializer=lambda answer: answer.SerializeToString(),
        )

    def _note(self, method: str, message: Message, code: str) -> None:
        """What was asked, a line each, in the order it came in."""
        request = MessageToDict(message, preserving_proto_field_name=True)
        if "secrets" in request:
            request["secrets"] = {key: hashlib.sha256(value.encode()).hexdigest()[:16] for key, value in request["secrets"].items()}
        with self._lock, self._calls.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"method": method, "request": request, "code": code}) + "\n")

    def _create_volume(self, request: Any) -> Message:
        wish = dict(request.parameters)
        if wish.get("answer-for") != "clone" or request.HasField("volume_content_source"):
            self._fail_if_told(wish, "create", request.name)
        asked = request.capacity_range.required_bytes
        size = {"zero": 0, "less": asked - 1, "more": asked + MIB}.get(wish.get("answer-bytes", ""), asked)
        handle = "" if wish.get("answer-handle") == "empty" else f"volume-{request.name}"
        with self._lock:
            self._parameters[handle] = wish
        context = dict(pair.split("=", 1) for pair in wish.get("answer-context", "").split(",") if pair)
        volume = pb.Volume(volume_id=handle, capacity_bytes=size, volume_context=context, accessible_topology=self._topologies(wish))
        if request.HasField("volume_content_source") and wish.get("answer-source") != "none":
            volume.content_source.CopyFrom(request.volume_content_source)
        return pb.CreateVolumeResponse(volume=volume)

    def _delete_volume(self, request: Any) -> Message:
        with self._lock:
            wish = self._parameters.get(request.volume_id, {})
        self._fail_if_told(wish, "delete", request.volume_id)
        return pb.DeleteVolumeResponse()

    def _get_capacity(self, request: Any) -> Message:
        free = int(request.parameters.get("answer-free", str(FREE)))
        return pb.GetCapacityResponse(available_capacity=free)

    def _topologies(self, wish: Mapping[str, str]) -> list[Any]:
        own = self._own
        answers: dict[str, list[dict[str, str]]] = {
            "none": [],
            "empty": [{}],
            "two": [own, {key: f"{value}-too" for key, value in own.items()}],
            "wider": [dict(list(own.items())[:1])],
            "more-keys": [{**own, "topology.parity/rack": "r1"}],
            "one-empty": [{}, own],
        }
        return [pb.Topology(segments=segments) for segments in answers.get(wish.get("answer-topology", ""), [own] if own else [])]

    def _fail_if_told(self, wish: Mapping[str, str], what: str, name: str) -> None:
        code = wish.get(f"answer-{what}-code")
        if code is None:
            return
        with self._lock:
            self._attempts[what, name] += 1
            attempt = self._attempts[what, name]
        if attempt <= int(wish.get(f"answer-{what}-times", "1000000")):
            raise Refusal(code, f"told to answer {what} with {code}")


def main(told: str) -> None:
    arguments = json.loads(told)
    endpoint = arguments.pop("endpoint")
    server = grpc.server(ThreadPoolExecutor(THREADS), [Driver(**arguments)])
    server.add_insecure_port(f"unix:{endpoint}")
    server.start()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()
    server.stop(1.0).wait()


if __name__ == "__main__":
    main(sys.argv[1])
