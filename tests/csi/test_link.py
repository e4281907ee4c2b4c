"""The link's law, without a socket: every state meets every event."""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product

import pytest

from sidecar.csi import link
from sidecar.csi.api import CONTROLLER_SERVICE, GET_CAPACITY, TOPOLOGY, DriverInfo
from sidecar.csi.outcome import Code, DriverError
from sidecar.model.topology import Segment

PATH = "/csi/csi.sock"
INFO = DriverInfo("test-driver", "v1", frozenset({CONTROLLER_SERVICE, TOPOLOGY}), frozenset(), "node-1", Segment((("rack", "a"),)))
STATES: list[link.LinkState] = [
    link.Waiting("w"), link.Probing("p"), link.Reading("r"), link.Ready(INFO), link.Lost("l"), link.GaveUp("g"),
]  # fmt: skip
EVENTS: list[link.Event] = [
    link.Connected(),
    link.ConnectFailed("why not"),
    link.Probed(True),
    link.InfoRead(INFO),
    link.Failed("Probe", DriverError(Code.UNAVAILABLE, "gone")),
    link.Disconnected("broke"),
]
LEGAL = {
    ("Waiting", "Connected"), ("Waiting", "ConnectFailed"), ("Lost", "Connected"), ("Lost", "ConnectFailed"), ("Probing", "Probed"),
    ("Probing", "Failed"), ("Reading", "InfoRead"), ("Reading", "Failed"), ("Ready", "Disconnected"),
}  # fmt: skip
FATAL_AT_START = [code for code in Code if code not in (Code.OK, Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)]


def fresh(state: link.LinkState | None = None, *, topology: bool = True) -> link.Link:
    first, _ = link.Link.start(PATH, now=100.0, limits=link.Limits(), topology=topology)
    return first if state is None else replace(first, state=state)


def seasoned(state: link.LinkState, *, topology: bool = True) -> link.Link:
    return replace(fresh(state, topology=topology), known=INFO)


def failed(code: Code, rpc: str = "Probe") -> link.Failed:
    return link.Failed(rpc, DriverError(code, "because"))


def test_it_starts_by_connecting_at_once() -> None:
    started, action = link.Link.start(PATH, now=100.0, limits=link.Limits(), topology=True)
    assert started.state == link.Waiting("connecting to /csi/csi.sock")
    assert (action, started.deadline) == (link.Connect(patience=10.0), 130.0)


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_every_state_meets_every_event(state: link.LinkState) -> None:
    for event, known in product(EVENTS, (None, INFO)):
        standing = replace(fresh(state), known=known)
        if (type(state).__name__, type(event).__name__) in LEGAL:
            after, action = standing.step(event, now=101.0)
            assert isinstance(after.state, link.GaveUp) == isinstance(action, link.GiveUp)
            assert isinstance(after.state, link.Ready) == isinstance(action, link.Serve)
        else:
            with pytest.raises(ValueError, match="has a bug"):
                standing.step(event, now=101.0)


def test_the_way_to_ready() -> None:
    walk, names = fresh(), []
    events: list[link.Event] = [link.Connected(), link.Probed(False), link.Probed(True), link.InfoRead(INFO)]
    for event in events:
        walk, action = walk.step(event, now=101.0)
        names.append((type(walk.state).__name__, type(action).__name__, action.after))
    assert names == [("Probing", "Probe", 0.0), ("Probing", "Probe", 1.0), ("Reading", "Read", 0.0), ("Ready", "Serve", 0.0)]
    assert walk.known == INFO
    assert walk.state.why == ""


def test_not_ready_repeats_for_ever() -> None:
    walk = fresh(link.Probing("p"))
    for hour in range(1000):
        walk, action = walk.step(link.Probed(False), now=hour * 3600.0)
        assert (walk.state, action) == (link.Probing(f"the driver says that it is not ready{link.NO_LIMIT}"), link.Probe(after=1.0))


@pytest.mark.parametrize("state", [link.Probing("p"), link.Reading("r")], ids=["probe", "read"])
@pytest.mark.parametrize("standing", [fresh, seasoned], ids=["start", "later"])
def test_a_slow_driver_is_probed_again_for_ever(state: link.LinkState, standing: Callable[[link.LinkState], link.Link]) -> None:
    after, action = standing(state).step(failed(Code.DEADLINE_EXCEEDED), now=1e6)
    assert isinstance(after.state, link.Probing)
    assert "DeadlineExceeded" in after.state.why
    assert action == link.Probe(after=1.0)


@pytest.mark.parametrize("code", FATAL_AT_START, ids=lambda code: code.value)
def test_any_other_error_ends_the_start_and_never_a_later_one(code: Code) -> None:
    for state in (link.Probing("p"), link.Reading("r")):
        after, action = fresh(state).step(failed(code), now=101.0)
        assert isinstance(action, link.GiveUp)
        assert after.state == link.GaveUp(action.text)
        assert all(word in action.text for word in (PATH, "Probe", "because"))
        after, action = seasoned(state).step(failed(code), now=101.0)
        assert isinstance(after.state, link.Lost)
        assert action == link.Connect(patience=10.0, after=0.2)


def test_a_connection_that_breaks_at_start_begins_the_limit_anew() -> None:
    after, action = fresh(link.Probing("p")).step(failed(Code.UNAVAILABLE), now=1000.0)
    assert isinstance(after.state, link.Waiting)
    assert after.deadline == 1030.0
    assert action == link.Connect(patience=10.0, after=0.2)
    after, action = after.step(link.ConnectFailed("gone"), now=1029.9)
    assert isinstance(action, link.Connect)
    _, action = after.step(link.ConnectFailed("gone"), now=1030.0)
    assert isinstance(action, link.GiveUp)


def test_a_driver_that_is_unavailable_all_the_time_ends_the_start_and_says_when() -> None:
    """It answers, so each attempt to connect succeeds."""
    walk, now, texts = fresh(), 100.0, list[str]()
    action: link.Action = link.Connect(10.0)
    while not isinstance(action, link.GiveUp):
        for event in (link.Connected(), failed(Code.UNAVAILABLE)):
            walk, action = walk.step(event, now=now)
        texts.append(walk.state.why)
        now += action.after
        assert now < 200.0
    assert 130.0 <= now <= 133.0
    assert set(texts[:-1]) == {
        "Probe failed: " + str(DriverError(Code.UNAVAILABLE, "because")) + "; this process ends if that lasts for 30 s"
    }
    assert "for 30 s" in action.text and PATH in action.text and "because" in action.text


@pytest.mark.parametrize("ready", [True, False])
def test_a_driver_that_answers_in_between_has_its_time_anew(ready: bool) -> None:
    walk = fresh()
    for now in (100.0, 125.0, 150.0, 175.0):
        for event in (link.Connected(), link.Probed(ready), failed(Code.UNAVAILABLE)):
            walk, action = walk.step(event, now=now)
        assert isinstance(action, link.Connect)


def away(walk: link.Link, now: float, until: float) -> tuple[list[float], link.Link, link.Action]:
    """Fails to connect until a time, or until it gives up; each attempt itself takes no time."""
    delays: list[float] = []
    action: link.Action = link.Connect(10.0)
    while now < until and not isinstance(action, link.GiveUp):
        walk, action = walk.step(link.ConnectFailed(f"{PATH} does not exist"), now=now)
        delays.append(action.after)
        now += action.after
    return delays, walk, action


def test_the_start_limit() -> None:
    delays, _, action = away(fresh(), 100.0, 1000.0)
    assert delays[:5] == pytest.approx([0.2, 0.4, 0.8, 1.6, 2.0])
    assert sum(delays) == pytest.approx(30.0)  # the last attempt falls on the limit
    assert isinstance(action, link.GiveUp)
    assert re.search(r"within 30 s: /csi/csi.sock does not exist\. Check .*--csi-address", action.text)


def test_at_start_no_attempt_is_more_patient_than_the_limit_allows() -> None:
    walk = fresh()
    for now in (100.0, 115.0, 121.0, 129.0, 129.95):
        walk, action = walk.step(link.ConnectFailed("no"), now=now)
        assert isinstance(action, link.Connect)
        assert 0.2 <= action.patience <= 10.0
        assert now + action.after <= 130.0
        assert now + action.after + action.patience <= 130.2


def test_a_lost_driver_is_waited_for_without_limit() -> None:
    delays, walk, _ = away(seasoned(link.Lost("l")), 100.0, 100.0 + 86400)
    assert delays[:5] == pytest.approx([0.2, 0.4, 0.8, 1.6, 2.0])
    assert max(delays) == 2.0
    assert walk.state == link.Lost(f"{PATH} does not exist")
    back: list[link.Event] = [link.Connected(), link.Probed(True), link.InfoRead(INFO)]
    for event in back:
        walk, _ = walk.step(event, now=9e9)
    walk, action = walk.step(link.Disconnected("broke"), now=9e9 + 30.0)
    assert (walk.state, action) == (link.Lost("broke"), link.Connect(patience=10.0, after=0.2))


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (replace(INFO, name="other"), "its name was 'test-driver' and is now 'other'"),
        (replace(INFO, node_id="node-2"), "the node's id was 'node-1' and is now 'node-2'"),
        (replace(INFO, segment=Segment((("rack", "b"),))), "topology was 'rack=a' and is now 'rack=b'"),
        (replace(INFO, segment=Segment()), "topology was 'rack=a' and is now '(none)'"),
        (replace(INFO, plugin=frozenset({CONTROLLER_SERVICE})), "topology was 'rack=a' and is now '(none)'"),
    ],
    ids=["name", "node", "segment", "no segment", "no topology"],
)
def test_another_driver_ends_the_process(new: DriverInfo, text: str) -> None:
    after, action = seasoned(link.Reading("r")).step(link.InfoRead(new), now=101.0)
    assert isinstance(action, link.GiveUp)
    assert text in action.text
    assert after.known == INFO


@pytest.mark.parametrize(
    ("new", "topology"),
    [
        (replace(INFO, version="v2"), True),
        (replace(INFO, controller=frozenset({GET_CAPACITY})), True),
        (replace(INFO, segment=Segment((("rack", "b"),))), False),
    ],
    ids=["version", "capabilities", "unused segment"],
)
def test_the_same_driver_with_other_news_is_taken_over(new: DriverInfo, topology: bool) -> None:
    after, action = seasoned(link.Reading("r"), topology=topology).step(link.InfoRead(new), now=101.0)
    assert (after.state, after.known, action) == (link.Ready(new), new, link.Serve())


@pytest.mark.parametrize("plugin", [INFO.plugin, frozenset({CONTROLLER_SERVICE})], ids=["announced", "said by another socket"])
def test_where_volumes_are_judged_by_the_nodes_topology_another_one_ends_the_process(plugin: frozenset[str]) -> None:
    """The node plugin of a driver that provisions centrally need not announce topology. Judged by what it said before, volumes that name
    the new labels would be on no node."""
    before = replace(INFO, plugin=plugin)
    for segment, topology in product((Segment((("rack", "b"),)), Segment()), (True, False)):
        judging = replace(seasoned(link.Reading("r"), topology=topology), known=before, judges=True)
        _, action = judging.step(link.InfoRead(replace(before, segment=segment)), now=101.0)
        assert isinstance(action, link.GiveUp) and f"topology was 'rack=a' and is now '{segment}'" in action.text


def test_malformed_names_are_remarked_upon_and_plausible_ones_are_not() -> None:
    for name in ("hostpath.csi.k8s.io", "a", "X-1.y", "a" * 63):
        assert link.remarks(None, replace(INFO, name=name), topology=True) == []
    for name in ("a_b", "-a", "a.", "a" * 64, "a/b", "ä", "a\n"):
        assert [remark.fields for remark in link.remarks(None, replace(INFO, name=name), topology=True)] == [{"driver": name}]


def test_topology_without_segments_is_remarked_upon_only_where_topology_is_wanted() -> None:
    bare = replace(INFO, segment=Segment())
    assert ["reports none" in remark.message for remark in link.remarks(None, bare, topology=True)] == [True]
    assert link.remarks(None, bare, topology=False) == []


@pytest.mark.parametrize("labels", [{"rack": "r" * 300}, {"rack": "a"} | {"row of racks": "1"}])
def test_a_topology_that_no_object_can_name_is_said_at_the_start(labels: dict[str, str]) -> None:
    strange = replace(INFO, segment=Segment.of(labels))
    (remark,) = link.remarks(None, strange, topology=True)
    assert "no object can name" in remark.message and remark.fields == {"driver": "test-driver", "err": strange.segment.flaw()}
    assert link.remarks(None, strange, topology=False) == []


def test_changed_capabilities_are_remarked_upon() -> None:
    new = replace(INFO, plugin=frozenset({TOPOLOGY}), controller=frozenset({GET_CAPACITY}))
    (remark,) = link.remarks(INFO, new, topology=True)
    assert remark.fields == {"gained": GET_CAPACITY, "lost": CONTROLLER_SERVICE}
    assert link.remarks(INFO, INFO, topology=True) == []


def connections(*, lasts: float, seconds: float) -> list[float]:
    """When a driver is connected to whose connections break so many seconds after each has become ready."""
    walk, now, found = replace(fresh(link.Lost("l")), known=INFO), 100.0, list[float]()
    while now < 100.0 + seconds:
        found.append(now)
        for event in (link.Connected(), link.Probed(True), link.InfoRead(INFO)):
            walk, _ = walk.step(event, now=now)
        walk, action = walk.step(link.Disconnected("broke"), now=now + lasts)
        now += lasts + action.after
    return found


def test_a_driver_whose_connections_break_at_once_is_asked_at_growing_pauses() -> None:
    times = connections(lasts=0.25, seconds=20.0)
    pauses = [later - earlier - 0.25 for earlier, later in pairwise(times)]
    assert pauses[:5] == pytest.approx([0.2, 0.4, 0.8, 1.6, 2.0])
    assert len(times) <= 12


@pytest.mark.parametrize("lasts", [30.0, 86_400.0])
def test_a_driver_that_was_ready_for_a_while_is_looked_for_at_once(lasts: float) -> None:
    times = connections(lasts=lasts, seconds=5 * lasts)
    assert [later - earlier for earlier, later in pairwise(times)] == pytest.approx([lasts + 0.2] * (len(times) - 1))
