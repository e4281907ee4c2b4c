"""What `drbdsetup` prints, and what is known from it: in its own lines, in those of the model, and in lines that are odd."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.sim import drbdsetup
from hack.sim.drbd import Storage
from sidecar.failover.drbd import Reading
from sidecar.failover.evidence import MOST_AGE, Fact, Resource, Snapshot, excluded

R = "pvc-5f1c2a"
# As drbd-utils 9 prints it beside a Primary that has crashed, with a third node that has no disk. Counters that wrapped around occur.
EVENTS = f"""\
exists resource name:{R} role:Secondary suspended:no force-io-failures:no write-ordering:flush may_promote:yes promotion_score:10102
exists connection name:{R} peer-node-id:0 conn-name:a connection:Connecting role:Unknown congested:no ap-in-flight:0 rs-in-flight:0
exists connection name:{R} peer-node-id:2 conn-name:c connection:Connected role:Secondary congested:no ap-in-flight:0 rs-in-flight:0
exists device name:{R} volume:0 minor:1000 backing_dev:/dev/vg/{R}_00000 disk:UpToDate client:no open:no quorum:yes size:2109208 \
read:1340 written:18446744073709551608 al-writes:1 bm-writes:0 upper-pending:0 lower-pending:0 al-suspended:no blocked:no
exists peer-device name:{R} peer-node-id:0 conn-name:a volume:0 replication:Off peer-disk:DUnknown peer-client:no resync-suspended:no \
received:0 sent:0 out-of-sync:0 pending:18446744073709551608 unacked:0
exists peer-device name:{R} peer-node-id:2 conn-name:c volume:0 replication:Established peer-disk:Diskless peer-client:yes \
resync-suspended:no received:0 sent:0 out-of-sync:0 pending:0 unacked:0
exists path name:{R} peer-node-id:0 conn-name:a local:ipv4:10.29.0.11:7293 peer:ipv4:10.29.0.13:7296 established:no
exists -
"""
STATUS = f"""\
[
{{
  "name": "{R}",
  "node-id": 1,
  "role": "Secondary",
  "suspended": false,
  "suspended-user": false,
  "suspended-no-data": false,
  "suspended-fencing": false,
  "suspended-quorum": false,
  "force-io-failures": false,
  "write-ordering": "flush",
  "devices": [
    {{
      "volume": 0,
      "minor": 1000,
      "disk-state": "UpToDate",
      "client": false,
      "open": false,
      "quorum": true,
      "size": 2109208,
      "read": 1340,
      "written": 18446744073709551608,
      "lower-pending": 0
    }} ],
  "connections": [
    {{
      "peer-node-id": 0,
      "name": "a",
      "connection-state": "Connecting",
      "congested": false,
      "peer-role": "Unknown",
      "tls": false,
      "paths": [ {{ "this_host": {{ "address": "10.29.0.11", "port": 7293, "family": "ipv4" }}, "established": false }} ],
      "peer_devices": [
        {{
          "volume": 0,
          "replication-state": "Off",
          "peer-disk-state": "DUnknown",
          "peer-client": false,
          "pending": 18446744073709551608,
          "percent-in-sync": 100.00
        }} ]
    }},
    {{
      "peer-node-id": 2,
      "name": "c",
      "connection-state": "Connected",
      "peer-role": "Secondary",
      "peer_devices": [
        {{ "volume": 0, "replication-state": "Established", "peer-disk-state": "Diskless", "peer-client": true }} ]
    }} ]
}}
]
"""
SHOW = f"""\
[
{{
    "resource": "{R}",
    "options": {{
        "on-no-data-accessible": "suspend-io",
        "quorum": "majority"
    }},
    "_this_host": {{ "node-id": 1, "volumes": [ {{ "volume_nr": 0, "device_minor": 1000 }} ] }},
    "connections": [ {{ "_peer_node_id": 0, "net": {{ "_name": "a" }} }} ]
}}
]
"""


def read(events: str | None = EVENTS, status: str | None = STATUS, show: str | None = SHOW, *, at: float = 100.0) -> Reading:
    reading = Reading()
    for kind, text in (("events", events), ("status", status), ("show", show)):
        if text is not None:
            reading.feed(kind, at, text)
    return reading


def known(**texts: Any) -> Resource:
    return read(**texts).snapshot(101.0).resources[R]


def proof(resource: Resource | None, peer: str = "a", now: float = 101.0) -> Fact:
    return excluded(resource, peer, now)


def test_all_of_it_is_known() -> None:
    snapshot = read().snapshot(101.0)
    one = snapshot.resources[R]
    assert (snapshot.at, snapshot.complete, snapshot.disagreements, snapshot.why) == (100.0, True, 0, "")
    assert (one.primary, one.open, one.suspended, one.failing_io, one.may_promote, one.has_quorum) == (
        False,
        False,
        set(),
        False,
        True,
        True,
    )
    assert (one.forbids_second, one.up_to_date, one.unknown) == (True, True, "")
    assert {name: (peer.connected, peer.up_to_date) for name, peer in one.peers.items()} == {
        "a": (False, None),
        "c": (True, False),
    }
    assert proof(one).holds and proof(one, "c").value is False and proof(one, "d").value is None


SEEN: list[tuple[str, str, Callable[[Resource], object], object]] = [
    ("role:Secondary", "role:Primary", lambda one: one.primary, True),
    ("role:Secondary", "role:Unknown", lambda one: one.primary, None),
    ("suspended:no force", "suspended:quorum,no-data force", lambda one: one.suspended, {"quorum", "no-data"}),
    ("suspended:no force", "suspended:user force", lambda one: one.suspended, {"user"}),
    ("suspended:no force", "suspended:weather force", lambda one: one.suspended, None),
    ("force-io-failures:no", "force-io-failures:yes", lambda one: one.failing_io, True),
    ("force-io-failures:no", "force-io-failures:perhaps", lambda one: one.failing_io, None),
    ("disk:UpToDate", "disk:Outdated", lambda one: one.up_to_date, False),
    ("disk:UpToDate", "disk:Diskless", lambda one: one.up_to_date, False),
    ("disk:UpToDate", "disk:Brandnew", lambda one: one.up_to_date, None),
    ("open:no", "open:yes", lambda one: one.open, True),
    ("quorum:yes", "quorum:no", lambda one: one.has_quorum, False),
    ("connection:Connecting", "connection:StandAlone", lambda one: (one.peers["a"].connected, one.peers["a"].cut_by_hand), (False, True)),
    ("connection:Connecting", "connection:Disconnecting", lambda one: one.peers["a"].cut_by_hand, True),
    ("connection:Connecting", "connection:NetworkFailure", lambda one: one.peers["a"].connected, False),
    ("connection:Connecting", "connection:Tunnelled", lambda one: one.peers["a"].connected, None),
    ("connection:Connecting role:Unknown", "connection:Connected role:Primary", lambda one: one.peers["a"].connected, True),
    ("peer-disk:DUnknown", "peer-disk:UpToDate", lambda one: one.peers["a"].up_to_date, True),
]


def both(old: str, new: str) -> dict[str, str]:
    """The same in both texts: what stands in the events, translated into the status."""
    obj, before, after = json.loads(STATUS), *(dict(word.split(":") for word in words.split() if ":" in word) for words in (old, new))
    link, device, flag = obj[0]["connections"][0], obj[0]["devices"][0], {"yes": True, "no": False}
    for key, value in after.items():
        if before.get(key) == value:
            continue
        if key == "suspended":
            obj[0] |= {"suspended": value != "no"} | {
                f"suspended-{word}": word in value.split(",") for word in ("user", "no-data", "quorum")
            }
        elif key == "connection":
            link["connection-state"] = value
        elif key == "role":
            (link if "connection" in after else obj[0])["peer-role" if "connection" in after else "role"] = value
        elif key == "force-io-failures":
            obj[0][key] = flag.get(value, value)
        elif key == "peer-disk":
            link["peer_devices"][0]["peer-disk-state"] = value
        else:
            device["disk-state" if key == "disk" else key] = flag.get(value, value)
    return {"events": EVENTS.replace(old, new, 1), "status": json.dumps(obj)}


@pytest.mark.parametrize(("old", "new", "seen", "wanted"), SEEN, ids=[f"{new} {number}" for number, (_, new, _, _) in enumerate(SEEN)])
def test_both_texts_say_it(old: str, new: str, seen: Callable[[Resource], object], wanted: object) -> None:
    one = known(**both(old, new))
    assert seen(one) == wanted and one.unknown == ""


@pytest.mark.parametrize("new", ["role:Primary", "disk:Outdated", "quorum:no", "connection:Connected role:Primary"])
def test_what_only_one_of_them_says_is_a_contradiction_and_counted(new: str) -> None:
    old = {"role": "role:Secondary", "disk": "disk:UpToDate", "quorum": "quorum:yes", "connection": "connection:Connecting role:Unknown"}
    snapshot = read(events=EVENTS.replace(old[new.partition(":")[0]], new, 1)).snapshot(101.0)
    one = snapshot.resources[R]
    assert snapshot.disagreements == 1 and not snapshot.complete
    assert "disagree" in one.unknown and one.unknown in snapshot.why
    assert (one.primary, one.may_promote, one.has_quorum, one.suspended) == (None, None, None, None)
    assert proof(one).value is None


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("may_promote:yes ", lambda one: one.may_promote),
        ("quorum:yes ", lambda one: one.has_quorum),
        ("disk:UpToDate ", lambda one: one.up_to_date),
        ("force-io-failures:no ", lambda one: one.failing_io),
        ("suspended:no ", lambda one: one.suspended),
        ("connection:Connecting ", lambda one: one.peers["a"].connected),
        ("open:no ", lambda one: one.open),
    ],
)
def test_a_missing_key_is_unknown_and_no_contradiction(line: str, seen: Callable[[Resource], object]) -> None:
    snapshot = read(events=EVENTS.replace(line, "", 1)).snapshot(101.0)
    assert seen(snapshot.resources[R]) is None and snapshot.disagreements == 0
    assert line == "suspended:no " or line == "open:no " or proof(snapshot.resources[R]).value is None


@pytest.mark.parametrize(
    ("role", "failing", "wanted"),
    [("Secondary", "no", False), ("Primary", "no", True), ("Secondary", "yes", True), ("Unknown", "no", None), ("Unknown", "yes", True)],
)
def test_where_no_text_says_what_is_open_role_and_failing_io_do(role: str, failing: str, wanted: bool | None) -> None:
    """Debian 12's drbd-utils print no `open`."""
    events = EVENTS.replace(" open:no", "").replace("role:Secondary s", f"role:{role} s").replace("failures:no", f"failures:{failing}")
    status = json.loads(STATUS)
    del status[0]["devices"][0]["open"]
    status[0] |= {"role": role, "force-io-failures": failing == "yes"}
    snapshot = read(events=events, status=json.dumps(status)).snapshot(101.0)
    assert snapshot.complete and snapshot.resources[R].open is wanted


@pytest.mark.parametrize("twice", ["disk:UpToDate disk:UpToDate", "disk:Outdated disk:UpToDate"])
def test_what_is_said_twice_is_unknown(twice: str) -> None:
    assert known(events=EVENTS.replace("disk:UpToDate", twice)).up_to_date is not True
    line = next(line for line in EVENTS.splitlines() if "device" in line)
    again = read(events=EVENTS.replace("exists -", f"{line}\nexists -")).snapshot(101.0)
    assert again.resources[R].unknown and not again.complete


def test_a_second_volume_counts_in_everything() -> None:
    extra = [line.replace("volume:0", "volume:1") for line in EVENTS.splitlines() if "volume:0" in line]
    obj = json.loads(STATUS)
    obj[0]["devices"].append({**obj[0]["devices"][0], "volume": 1})
    for link in obj[0]["connections"]:
        link["peer_devices"].append({**link["peer_devices"][0], "volume": 1})
    events = EVENTS.replace("exists -", "\n".join([*extra, "exists -"]))
    assert proof(known(events=events, status=json.dumps(obj))).holds
    obj[0]["devices"][1]["quorum"] = False
    lost = events.replace(extra[0], extra[0].replace("quorum:yes", "quorum:no"))
    assert known(events=lost, status=json.dumps(obj)).has_quorum is False
    unsure = events.replace(extra[0], extra[0].replace("open:no ", ""))
    assert known(events=unsure, status=json.dumps(obj)).open is None
    assert known(events=events.replace(extra[0] + "\n", ""), status=json.dumps(obj)).has_quorum is not True  # one of them does not show it


@pytest.mark.parametrize(
    ("quorum", "wanted"),
    [
        ('"majority"', True), ('"all"', True), ('"2"', True), ('"1"', False), ('"off"', False), ('"x"', None), ('"99999999999"', None),
        ("2", True), ("true", None), ("null", None),
    ],
)  # fmt: skip
def test_f11_quorum_that_keeps_a_second_writer_out(quorum: str, wanted: bool | None) -> None:
    three = STATUS.replace('"Diskless", "peer-client": true', '"UpToDate", "peer-client": false')
    events = EVENTS.replace("peer-disk:Diskless peer-client:yes", "peer-disk:UpToDate peer-client:no")
    one = known(events=events, status=three, show=SHOW.replace('"majority"', quorum))
    assert one.forbids_second is wanted and proof(one).holds is (wanted is True)


def test_f11_an_option_that_is_missing_is_off_and_a_text_that_is_missing_is_unknown() -> None:
    off = known(show=SHOW.replace(',\n        "quorum": "majority"', ""))
    assert off.forbids_second is False and not proof(off).holds
    snapshot = read(show=None).snapshot(101.0)
    assert snapshot.resources[R].forbids_second is None and not snapshot.complete and "show" in snapshot.why
    assert known(show="[]").forbids_second is None


def test_a_peer_that_may_have_a_disk_has_a_vote() -> None:
    """A tie-breaker that is away is printed as one with a disk: then 2 of perhaps 4 is no majority."""
    four = EVENTS.replace("exists -", "\n".join(
        line.replace("conn-name:a", f"conn-name:{peer}") for peer in "xy" for line in EVENTS.splitlines() if "conn-name:a" in line
    ) + "\nexists -")  # fmt: skip
    obj = json.loads(STATUS)
    obj[0]["connections"] += [{**obj[0]["connections"][0], "name": peer} for peer in "xy"]
    for number, wanted in (("2", False), ("3", True)):
        assert known(events=four, status=json.dumps(obj), show=SHOW.replace("majority", number)).forbids_second is wanted


# --- what cannot be read ----------------------------------------------------------------------------------------------------------


def others(text: str, kind: str) -> str:
    """A second resource in the same text."""
    if kind == "events":
        return "\n".join([*(line.replace(R, "second") for line in text.splitlines()[:-1]), text])
    inner = text.strip()[1:-1]
    return f"[{inner},{inner.replace(R, 'second')}]"


BOTH = {"events": others(EVENTS, "events"), "status": others(STATUS, "status"), "show": others(SHOW, "show")}


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("status", '"written": 18446744073709551608', '"written": 0x12'),
        ("status", '"peer-node-id": 0,', '"peer-node-id": ,'),
        ("status", '"role": "Secondary"', '"role": "Seco\u0000ndary"'),
        ("status", '"devices": [', '"devices": {'),
        ("events", "exists resource name:", "exists resource nome:"),
        ("show", '"quorum": "majority"', '"quorum": "majority'),
    ],
)
def test_one_resource_that_cannot_be_read_does_not_blind_the_rest(kind: str, old: str, new: str) -> None:
    """The first of the two is broken in each text."""
    first = "second" if kind == "events" else R
    other = R if first == "second" else "second"
    snapshot = read(**{**BOTH, kind: BOTH[kind].replace(old, new, 1)}).snapshot(101.0)
    assert proof(snapshot.resources[other]).holds
    assert not proof(snapshot.resources.get(first)).holds
    assert not snapshot.complete and snapshot.why


def test_a_status_that_is_cut_off_counts_as_far_as_it_goes() -> None:
    half = BOTH["status"][: len(BOTH["status"]) * 3 // 4]
    snapshot = read(**{**BOTH, "status": half}).snapshot(101.0)
    assert proof(snapshot.resources[R]).holds and snapshot.resources["second"].unknown
    assert (snapshot.complete, snapshot.disagreements) == (False, 0)


def test_a_dump_that_is_cut_off_does_not_count() -> None:
    reading = read(**BOTH)
    assert not reading.feed("events", 105.0, BOTH["events"][:-9])
    assert reading.snapshot(106.0).at == 100.0
    assert not reading.snapshot(112.5).resources


@pytest.mark.parametrize(
    "text",
    ["", "[", "]", "[]", "null", "{}", "[null]", '[{"name": 3}]', '[{"name": []}]', '[{"name":' * 5000, "[" * 50000,
     '{"name": "' + "x" * 100000,
     f'[{{"name": "{R}", "devices": 3, "connections": [7, {{"name": {{}}}}, {{"peer_devices": "x"}}]}}]'],
    ids=lambda text: text[:16],
)  # fmt: skip
def test_nonsense_is_unknown_and_raises_nothing(text: str) -> None:
    for kind in ("events", "status", "show"):
        snapshot = read(**{"events": EVENTS, "status": STATUS, "show": SHOW, kind: text}).snapshot(101.0)
        assert not proof(snapshot.resources.get(R)).holds
        assert not snapshot.complete or snapshot.resources[R].has_quorum is None
    reading = read()
    for kind in ("failed", "weather", "change"):
        reading.feed(kind, 100.5, text)
        reading.snapshot(101.0)


def no_proofs() -> Iterator[dict[str, str]]:
    """Texts of a healthy volume, of partial meshes and of a side without quorum, as each node has them that must not act on the first."""
    for disks, diskless in SHAPES:
        for cut, nodes in (("", "bc"), ("b", "bc"), ("bc", "a")):
            cluster = Cluster(*disks, diskless=diskless)
            for peer in cut:
                cluster.storage.cut("a", peer)
            cluster.after(11.0)
            for node in nodes:
                yield {f.__name__: f(cluster.storage, node) for f in (drbdsetup.events, drbdsetup.status, drbdsetup.show)}


def test_nothing_that_is_left_out_makes_a_proof() -> None:
    """Each single word of the events and each line of both texts; and what one of them says otherwise."""
    tried = 0
    for texts in no_proofs():
        for kind in ("events", "status"):
            words = re.findall(r"\S+|\n", texts[kind])
            lines = texts[kind].splitlines(keepends=True)
            without = [" ".join(words[:number] + words[number + 1 :]) for number in range(len(words))] if kind == "events" else []
            without += ["".join(lines[:number] + lines[number + 1 :]) for number in range(len(lines))]
            for old, new in (("Outdated", "UpToDate"), ("Connected", "Connecting"), ("Primary", "Secondary"), ('m": false', 'm": true')):
                without.append(texts[kind].replace(old, new))
            for text in without:
                resource = read(**{**texts, kind: text}, at=11.0).snapshot(11.0).resources.get("vol")
                assert not any(excluded(resource, peer, 11.0).holds for peer in "abc"), text
                tried += 1
    assert tried > 1500


@given(st.data())
def test_whatever_is_printed_it_is_read_without_an_error(data: st.DataObject) -> None:
    texts = {"events": EVENTS, "status": STATUS, "show": SHOW}
    kind = data.draw(st.sampled_from(sorted(texts)))
    text = texts[kind]
    for _ in range(data.draw(st.integers(1, 4))):
        begin = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(begin, min(len(text), begin + 40)))
        text = text[:begin] + data.draw(st.text('{}[]":,0x- \nanulltrue', max_size=6) | st.text(max_size=4)) + text[end:]
    reading = read(**{**texts, kind: text})
    for line in text.splitlines():
        reading.feed("change", 100.5, line.replace("exists", "change"))
    reading.snapshot(101.0)
    read(**{**texts, kind: text}).snapshot(101.0)


def test_white_space_does_not_matter() -> None:
    assert proof(known(events=EVENTS.replace(" ", "   ").replace("\n", " \n\n"), status="\n\n" + STATUS.replace("\n", "\t \n "))).holds


def test_nothing_at_all_is_complete_where_all_three_say_so() -> None:
    snapshot = read("exists -\n", "[\n]\n", "[ ]").snapshot(101.0)
    assert snapshot.complete and not snapshot.resources


# --- time ---------------------------------------------------------------------------------------------------------------------------


def test_what_is_older_than_its_bound_is_not_there_and_what_is_to_come_is_not_either() -> None:
    reading = read()
    assert proof(reading.snapshot(100.0 + MOST_AGE).resources[R], now=100.0 + MOST_AGE).holds
    assert not reading.snapshot(100.1 + MOST_AGE).resources and not reading.snapshot(99.9).resources


def test_the_older_of_two_reads_counts() -> None:
    reading = read()
    reading.feed("events", 108.0, EVENTS)
    assert reading.snapshot(109.0).resources[R].at == 100.0
    assert not reading.snapshot(112.5).resources
    reading.feed("status", 107.0, STATUS)
    assert reading.snapshot(109.0).resources[R].at == 107.0
    reading.feed("status", 101.0, STATUS.replace("Secondary", "Primary", 1))  # it comes late
    assert reading.snapshot(109.0).resources[R].at == 107.0


def test_a_change_makes_unknown_until_both_are_read_anew() -> None:
    reading = read(**BOTH)
    change = f"change connection name:{R} peer-node-id:0 conn-name:a connection:Connected role:Primary"
    assert reading.feed("change", 103.0, change)
    snapshot = reading.snapshot(103.0)
    assert snapshot.resources[R].unknown == "it has changed since it was read" and proof(snapshot.resources["second"]).holds
    assert snapshot.disagreements == 0
    reading.feed("events", 102.9, BOTH["events"])  # asked for before
    reading.feed("status", 104.0, BOTH["status"])
    assert reading.snapshot(104.0).resources[R].unknown
    reading.feed("events", 104.0, BOTH["events"])
    assert not reading.snapshot(104.0).resources[R].unknown


@pytest.mark.parametrize(
    ("line", "tells"),
    [
        ("exists resource name:%s role:Secondary may_promote:yes", False),
        ("change path name:%s peer-node-id:0 conn-name:a local:ipv4:10.0.0.1:7000 peer:ipv4:10.0.0.2:7000 established:no", False),
        ("call helper name:%s peer-node-id:0 conn-name:a helper:disconnected", False),
        ("response helper name:%s peer-node-id:0 conn-name:a helper:disconnected status:0", False),
        ("change peer-device name:%s peer-node-id:0 conn-name:a volume:0 done:12.34", False),
        ("change resource name:%s promotion_score:10101", False),
        ("change resource name:%s may_promote:no promotion_score:0", True),
        ("change device name:%s volume:0 minor:1000 disk:Outdated", True),
        ("change device name:%s volume:0 minor:1000 quorum:no", True),
        ("create connection name:%s peer-node-id:4 conn-name:x connection:StandAlone role:Unknown", True),
        ("destroy connection name:%s peer-node-id:0 conn-name:a", True),
        ("rename resource name:%s new_name:other", True),
    ],
)
def test_which_lines_tell_of_a_change(line: str, tells: bool) -> None:
    reading = read()
    assert reading.feed("change", 100.5, line % R) is tells
    assert bool(reading.snapshot(101.0).resources[R].unknown) is tells


def test_changes_beyond_number_are_not_remembered_one_by_one() -> None:
    reading = read()
    for number in range(20000):
        reading.feed("change", 100.5 + number / 100000, f"change resource name:r{number} role:Primary")
    snapshot = reading.snapshot(101.0)
    assert not snapshot.complete and snapshot.resources[R].unknown
    reading.feed("events", 100.6, EVENTS)  # asked for before the last of them
    assert reading.snapshot(101.0).resources[R].unknown
    for kind, text in (("events", EVENTS), ("status", STATUS)):
        reading.feed(kind, 101.0, text)
    assert proof(reading.snapshot(101.5).resources[R]).holds


# --- cases, on the model --------------------------------------------------------------------------------------------------------------


class Cluster:
    """The model, its clock, and what one node is shown of it."""

    def __init__(self, *disks: str, diskless: str = "", quorum: str = "majority") -> None:
        self.now = 0.0
        self.storage = Storage(lambda: self.now)
        self.storage.add("vol", disks=disks, diskless=diskless, quorum=quorum)
        assert self.storage.open("a", "vol") and self.storage.write("a", "vol", "first")

    def after(self, seconds: float) -> Cluster:
        self.now += seconds
        return self

    def seen(self, node: str) -> Snapshot:
        texts = (f(self.storage, node) for f in (drbdsetup.events, drbdsetup.status, drbdsetup.show))
        return read(*texts, at=self.now).snapshot(self.now)

    def proof(self, node: str, peer: str = "a") -> Fact:
        return excluded(self.seen(node).resources["vol"], peer, self.now)


SHAPES = [(("a", "b"), "c"), (("a", "b", "c"), "")]


@pytest.mark.parametrize(("disks", "diskless"), SHAPES)
def test_f01_a_crash_is_proven_as_soon_as_it_is_noticed(disks: tuple[str, ...], diskless: str) -> None:
    cluster = Cluster(*disks, diskless=diskless)
    assert cluster.proof("b").value is False
    cluster.storage.crash("a")
    assert cluster.after(5.9).proof("b").value is False  # nobody has noticed yet
    assert cluster.after(4.7).proof("b").holds
    assert cluster.proof("c").holds is (not diskless)


@pytest.mark.parametrize(("disks", "diskless"), SHAPES)
def test_f08_partial_mesh(disks: tuple[str, ...], diskless: str) -> None:
    cluster = Cluster(*disks, diskless=diskless)
    cluster.storage.cut("a", "b")
    seen = cluster.after(11.0).seen("b").resources["vol"]
    assert (seen.has_quorum, seen.peers["a"].connected) == (True, False)
    assert not cluster.proof("b").holds and not cluster.proof("c").holds
    assert cluster.proof("c").says == "vol: a is connected"
    assert cluster.storage.write("a", "vol", "second")


@pytest.mark.parametrize(("disks", "diskless"), SHAPES)
def test_f36_the_minority_has_no_proof(disks: tuple[str, ...], diskless: str) -> None:
    cluster = Cluster(*disks, diskless=diskless)
    for peer in "bc":
        cluster.storage.cut("a", peer)
    cluster.after(11.0)
    mine = cluster.seen("a").resources["vol"]
    assert (mine.primary, mine.has_quorum, mine.suspended) == (True, False, {"quorum"})
    assert not cluster.proof("a", "b").holds and not cluster.proof("a", "c").holds
    assert cluster.proof("b").holds


def test_f10_a_tie_breaker_without_data_proves_nothing() -> None:
    cluster = Cluster("a", "b", diskless="c")
    cluster.storage.crash("b")
    cluster.after(11.0).storage.crash("a")
    seen = cluster.after(11.0).seen("c").resources["vol"]
    assert (seen.up_to_date, seen.may_promote) == (False, False)
    assert not cluster.proof("c").holds


@pytest.mark.parametrize(("quorum", "proven"), [("majority", True), ("2", True), ("all", False), ("1", False), ("off", False)])
def test_f11_of_three(quorum: str, proven: bool) -> None:
    """With `all` nobody goes on where one is missing."""
    cluster = Cluster("a", "b", "c", quorum=quorum)
    cluster.storage.crash("a")
    assert cluster.after(11.0).proof("b").holds is proven


def test_f16_an_administrators_disconnect_proves_nothing() -> None:
    cluster = Cluster("a", "b", diskless="c")
    cluster.storage.disconnect("vol", "b", "a")
    assert cluster.proof("b").value is None and "administrator" in cluster.proof("b").says


def test_f39_a_tool_that_hangs() -> None:
    """What it showed last was a proof. Beyond its age nothing is."""
    cluster = Cluster("a", "b", diskless="c")
    cluster.storage.crash("a")
    cluster.after(11.0)
    reading = read(*(f(cluster.storage, "b") for f in (drbdsetup.events, drbdsetup.status, drbdsetup.show)), at=11.0)
    for now in (12.0, 16.0, 21.0):
        reading.feed("failed", now, "status it took longer than 4 s and was killed")
        assert excluded(reading.snapshot(now).resources["vol"], "a", now).holds
    last = reading.snapshot(23.1)
    assert not last.resources and not last.complete and "status: it took longer" in last.why


def test_f40_a_boot() -> None:
    """Without the module, then with no resource, then with all, which have no quorum yet: nothing of it looks healthy."""
    reading = Reading()
    for kind in ("events", "status", "show"):
        reading.feed("failed", 1.0, f"{kind} it ended with 20")
    assert not reading.snapshot(1.0).complete and "ended with 20" in reading.snapshot(1.0).why
    for kind, text in (("events", "exists -"), ("status", "[]"), ("show", "[]")):
        reading.feed(kind, 2.0, text)
    assert reading.snapshot(2.0).complete and "vol" not in reading.snapshot(2.0).resources
    cluster = Cluster("a", "b", "c")
    cluster.storage.cut("b", "a")
    cluster.storage.cut("b", "c")
    assert cluster.after(11.0).seen("b").resources["vol"].has_quorum is False
