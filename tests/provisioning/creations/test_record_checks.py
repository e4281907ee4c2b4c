"""What no record of ours can hold is no record, and what every record of ours may hold is one."""

import json
from dataclasses import replace
from typing import Any

import pytest

from sidecar.csi import codec
from sidecar.csi.api import Capability, CreateRequest
from sidecar.model.topology import Segment
from sidecar.provisioning.creations.creation_record import BegunDeletion, CreationRecord, to_line
from sidecar.provisioning.creations.journal_lines import Damage, Damaged, begin_line, read_line
from sidecar.provisioning.creations.record_checks import oddity

HALF = json.loads('"\\ud800"')
"""Half of a character."""
REQUEST = CreateRequest(
    name="pvc-1",
    required_bytes=2**30,
    capabilities=(Capability("SINGLE_NODE_WRITER", fs_type="ext4", mount_flags=("noatime",)),),
    parameters={"pool": "ümläut\n"},
    requisite=(Segment.of({"a": "b"}),),
    source_snapshot="snap/1#2",
)
RECORD = CreationRecord("5bf8c1a0-26ee-4e2c-9a0e-c2f7f3a3d9d3", "ns", "www.claim-1", "fast", REQUEST, secret=("ns", "creds"))


def request(**changes: Any) -> CreationRecord:
    return replace(RECORD, request=replace(REQUEST, **changes))


def test_what_this_program_writes_is_read() -> None:
    for record in [
        RECORD,
        replace(RECORD, seeks=True, shown="/dev/zvol/pool/volume 1"),
        replace(RECORD, earlier=((replace(REQUEST, parameters={}), None), (replace(REQUEST, required_bytes=1), ("ns", "old")))),
        replace(RECORD, secret=None, reclaim_policy="", deletion=BegunDeletion("/dev/zvol/pool/volume 1", any_node=True)),
        request(name="PVC-1", required_bytes=0, capabilities=(), source_volume="x" * 4096, source_snapshot=""),
    ]:
        assert read_line(begin_line(record)) == (record, True)


def test_what_no_record_holds_is_none_and_is_not_repeated() -> None:
    for record in [
        *(replace(RECORD, uid=uid) for uid in ("", "../x", "a/b", "x" * 129, "a\n", "ä")),
        *(replace(RECORD, namespace=name) for name in ("", "..", "kube-system/secrets", "a.b", "A", "x" * 64)),
        *(replace(RECORD, name=name) for name in ("", "..", "a/b", "A", "x" * 254, "a\0")),
        *(replace(RECORD, class_name=name) for name in ("", "../../secrets", "A")),
        *(replace(RECORD, secret=secret) for secret in (("", "creds"), ("ns", ""), ("a/b", "c"), ("ns", "../x"))),
        *(replace(RECORD, reclaim_policy=policy) for policy in ("delete", "Keep")),
        *(replace(RECORD, denials=number) for number in (-1, 2**31)),
        *(replace(RECORD, deletion=BegunDeletion(handle)) for handle in ("", "a\0b", "x" * 4097, HALF)),
        *(replace(RECORD, shown=handle) for handle in ("a\0b", "x" * 4097, HALF)),
        *(request(required_bytes=number) for number in (-1, 2**63)),
        *(request(name=name) for name in ("", "a\nb", "x" * 4097, HALF)),
        *(request(source_snapshot=handle) for handle in ("a\x1b[2J", "x" * 4097, HALF)),
        *(request(capabilities=(item,)) for item in (Capability("ANY"), Capability("SINGLE_NODE_WRITER", mount_flags=(HALF,)))),
        *(request(parameters=parameters) for parameters in ({HALF: "x"}, {"x": HALF})),
        request(mutable_parameters={"x": HALF}),
        *(replace(RECORD, earlier=((replace(REQUEST, **each), None),)) for each in ({"name": "pvc-2"}, {"parameters": {"x": HALF}})),
        replace(RECORD, earlier=((REQUEST, ("ns", "../x")),)),
        request(requisite=(Segment.of({"x": HALF}),)),
    ]:
        for line in (begin_line(record), to_line(record)):
            said, _ = read_line(line)
            assert isinstance(said, Damaged) and said.kind is Damage.GARBLED
            assert said.why == oddity(record) and len(said.why) < 80


def test_what_is_read_can_be_sent_to_the_driver() -> None:
    """Whatever a file holds: what cannot be sent would be tried for ever."""
    for record in (request(name=HALF), request(required_bytes=2**63), request(capabilities=(Capability("ANY"),))):
        with pytest.raises(ValueError, match=r"."):
            codec.create_volume(record.request)
    assert codec.create_volume(RECORD.request).name == "pvc-1"
