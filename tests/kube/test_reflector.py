"""In virtual time, on a scripted API: what a reflector learns, and how often it asks while the server is broken."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest

from hack.sim.clock import run_virtual
from sidecar.kube.api import CAPACITIES, CLAIMS, NODES, PODS, Change, KubeApi, Page, Resource, WatchEvent
from sidecar.kube.errors import (
    ApiError,
    BadEvent,
    BadRequest,
    Forbidden,
    Gone,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    VersionTooLarge,
    from_status,
)
from sidecar.kube.reflector import Reflector
from sidecar.kube.reflector_state import Degraded, Denied, Listing, Off, ReflectorState, Synced
from sidecar.kube.store import Store
from sidecar.model.objects import Json


@dataclass(frozen=True)
class Rec:
    name: str
    colour: str


def obj(name: str, version: int, colour: str = "red") -> Json:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "colour": colour}


def project(body: Json) -> Rec | None:
    """Grey ones do not concern us."""
    return None if body["colour"] == "grey" else Rec(body["metadata"]["name"], body["colour"])


def ev(kind: str, name: str, version: int, colour: str = "red") -> WatchEvent:
    return WatchEvent(kind, obj(name, version, colour))


def bookmark(version: int) -> WatchEvent:
    return WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def now() -> float:
    return asyncio.get_running_loop().time()


class ScriptedApi:
    """Lists and watches that do what they are told; of each script the last entry stays."""

    def __init__(self) -> None:
        self.lists: list[Any] = [Page([], "10", "")]
        self.watches: list[Any] = [["for ever"]]
        self.asked: list[tuple[str, float, str]] = []
        """(what, when, continue token or version)"""
        self.reached = "1000"
        """The version that the server has come to."""
        self.probed: list[Any] = []
        """The answers to that question, where they are others."""
        self.probes: list[dict[str, str]] = []
        """With which selectors it was asked for that."""
        self.closed = 0

    async def list_page(self, resource: object, *, limit: int, continue_token: str = "", begin: object, skip: object, **scope: str) -> Page:
        if limit == 1:
            self.probes.append(scope)
            self.asked.append(("version", now(), ""))
            return cast(Page, await self._play(self.probed or [Page([obj("x", 1)], self.reached, "more")]))
        self.asked.append(("page" if continue_token else "list", now(), continue_token))
        return cast(Page, await self._play(self.lists))

    async def watch(self, resource: object, *, resource_version: str, **_: object) -> AsyncIterator[WatchEvent]:
        self.asked.append(("watch", now(), resource_version))
        try:
            for step in await self._play(self.watches):
                match step:
                    case WatchEvent():
                        yield step
                    case "for ever":
                        await asyncio.Event().wait()
                    case Exception():
                        raise step
                    case _:
                        await asyncio.sleep(step)
        finally:
            self.closed += 1

    async def _play(self, script: list[Any]) -> Any:
        step = script[0] if len(script) == 1 else script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    def attempts(self) -> list[float]:
        return [at for what, at, _ in self.asked if what in ("list", "watch")]

    def requests(self) -> list[float]:
        return [at for what, at, _ in self.asked if what != "page"]


class Bench:
    def __init__(self, api: ScriptedApi, *, resource: Resource = CLAIMS, **options: Any) -> None:
        self.api = api
        self.changes: list[tuple[Rec | None, Rec | None]] = []
        self.states: list[tuple[float, ReflectorState]] = []
        self.reflector: Reflector[Rec] = Reflector(
            cast(KubeApi, api),
            resource,
            **{
                "project": project,
                "store": Store[Rec](),
                "on_change": self._on_change,
                "on_state": lambda state: self.states.append((now(), state)),
                "clock": now,
                "rng": lambda: 0.5,
                **options,
            },
        )

    def _on_change(self, change: Change[Rec]) -> None:
        self.changes.append((change.old, change.new))

    @property
    def held(self) -> dict[str, str]:
        return {key: record.colour for key in self.reflector.store if (record := self.reflector.store.get(key))}

    def run(self, seconds: float) -> "Bench":
        async def main() -> None:
            running = asyncio.create_task(self.reflector.run())
            await asyncio.sleep(seconds)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

        run_virtual(main())
        return self


def test_list_then_watch_from_its_version_at_once() -> None:
    api = ScriptedApi()
    api.lists = [Page([obj("a", 1), obj("b", 2, "grey")], "10", "")]
    api.watches = [[ev("ADDED", "c", 11), bookmark(20), "for ever"]]
    bench = Bench(api).run(1.0)
    assert api.asked == [("list", 0.0, ""), ("watch", 0.0, "10")]
    assert bench.held == {"a": "red", "c": "red"}
    reflector = bench.reflector
    assert (reflector.resource_version, reflector.lists, reflector.attempts, reflector.events) == ("20", 1, 2, 2)
    assert [state for _, state in bench.states] == [Synced()]
    assert api.closed == 1, "a cancelled reflector closes its watch"


def test_events_become_changes() -> None:
    api = ScriptedApi()
    api.lists = [Page([obj("a", 1)], "10", "")]
    api.watches = [
        [
            ev("MODIFIED", "a", 11, "blue"),
            ev("MODIFIED", "a", 12, "blue"),
            ev("MODIFIED", "a", 13, "grey"),
            ev("MODIFIED", "a", 14, "grey"),
            ev("ADDED", "b", 15, "grey"),
            ev("DELETED", "b", 16, "grey"),
            ev("DELETED", "never seen", 17),
            ev("MODIFIED", "late", 18),
            ev("DELETED", "late", 19),
            ev("UNHEARD-OF", "x", 20),
            "for ever",
        ]
    ]
    bench = Bench(api).run(1.0)
    red, blue, late = Rec("a", "red"), Rec("a", "blue"), Rec("late", "red")
    assert bench.changes == [(None, red), (red, blue), (blue, None), (None, late), (late, None)]
    assert bench.reflector.resource_version == "20"


def test_a_normal_end_after_a_long_life_resumes_at_once_where_it_was() -> None:
    api = ScriptedApi()
    api.watches = [[300.0, bookmark(50)], [300.0, bookmark(60)], ["for ever"]]
    bench = Bench(api).run(1000.0)
    assert api.asked == [("list", 0.0, ""), ("watch", 0.0, "10"), ("watch", 300.0, "50"), ("watch", 600.0, "60")]
    assert bench.reflector.lists == 1
    assert [state for _, state in bench.states] == [Synced()]


@pytest.mark.parametrize("luck", [0.0, 0.75])
def test_what_ends_before_its_time_resumes_within_a_second_for_it_has_ended_for_all_nodes(luck: float) -> None:
    api = ScriptedApi()
    api.watches = [[100.0, bookmark(50)], ["for ever"]]
    bench = Bench(api, rng=lambda: luck).run(200.0)
    assert api.asked[2:] == [("watch", 100.0 + luck, "50")]
    assert [state for _, state in bench.states] == [Synced()]


@pytest.mark.parametrize("lasted", [0.5, 100.0, 300.0])
def test_a_watch_that_tells_of_nothing_while_all_is_well_is_no_hurry(lasted: float) -> None:
    api = ScriptedApi()
    api.watches = [[lasted / 2, bookmark(50), lasted / 2], [ev("ADDED", "a", 60)], ["for ever"]]
    bench = Bench(api, is_silent=True).run(600.0)
    assert api.asked[2:] == [("watch", lasted + 6.0, "50"), ("watch", lasted + 6.5, "60")], "4 to 8 s; soon where something was told"
    assert [state for _, state in bench.states] == [Synced()] and bench.held == {"a": "red"}


def test_a_break_resumes_after_a_moment_without_a_new_list() -> None:
    api = ScriptedApi()
    api.watches = [[ev("ADDED", "a", 11), 100.0, Unavailable("reset")], ["for ever"]]
    bench = Bench(api).run(200.0)
    assert api.asked[2:] == [("watch", 101.5, "11"), ("version", 121.5, "")]
    assert [state for _, state in bench.states] == [Synced()], "short trouble is not worth mentioning"


@pytest.mark.parametrize(
    "broken", [[Unavailable("reset")], [20.0, Unavailable("reset")], [300.0, ev("ADDED", "b", 11), Unavailable("reset")]]
)
def test_a_server_that_was_put_back_to_an_earlier_state_is_listed_anew(broken: list[Any]) -> None:
    """It accepts the version, which lies in its future, and tells nothing until it gets there; of what it has put back it never tells."""
    api = ScriptedApi()
    api.lists = [Page([obj("a", 5), obj("b", 6)], "10", ""), Page([obj("a", 2, "blue")], "4", "")]
    api.watches = [broken, ["for ever"]]
    api.reached = "4"
    bench = Bench(api).run(400.0)
    assert bench.held == {"a": "blue"}
    assert [what for what, *_ in api.asked] == ["list", "watch", "watch", "version", "list", "watch"]
    assert api.asked[-1][2] == "4" and bench.reflector.state == Synced()


def test_a_server_that_cannot_say_how_far_it_has_come_is_asked_again_while_the_watch_lasts() -> None:
    api = ScriptedApi()
    api.lists = [Page([obj("a", 5)], "10", ""), Page([obj("a", 2, "blue")], "4", "")]
    api.watches = [[300.0, Unavailable("reset")], ["for ever"]]
    api.probed = [Unavailable("it starts"), Forbidden("its roles are not read yet"), Page([], "4", "")]
    bench = Bench(api).run(500.0)
    assert bench.held == {"a": "blue"}
    assert [what for what, *_ in api.asked] == ["list", "watch", "watch", *["version"] * 3, "list", "watch"]
    asked = [at for what, at, _ in api.asked if what == "version"]
    assert [later - earlier for earlier, later in itertools.pairwise(asked)] == [20.0, 20.0]


@pytest.mark.parametrize(
    ("resource", "scope", "asked"),
    [
        (CLAIMS, {}, {}),
        (CLAIMS, {"namespace": "ns"}, {"namespace": "ns"}),
        (NODES, {"field_selector": "metadata.name=n1"}, {"field_selector": "metadata.name=n1"}),
        (NODES, {"label_selector": "a=b"}, {"label_selector": "a=b", "field_selector": "metadata.name=none"}),
        (
            PODS,
            {"field_selector": "spec.nodeName=n1"},
            {"field_selector": "spec.nodeName=n1,metadata.name=none", "namespace": "default"},
        ),
        (
            CAPACITIES,
            {"namespace": "ns", "label_selector": "a=b"},
            {"namespace": "ns", "label_selector": "a=b", "field_selector": "metadata.name=none"},
        ),
    ],
)
def test_how_far_a_server_has_come_is_asked_with_the_selectors_of_the_watch(
    resource: Resource, scope: dict[str, str], asked: dict[str, str]
) -> None:
    """Else whoever may list only with them would never learn it."""
    api = ScriptedApi()
    api.watches = [[300.0, Unavailable("reset")], ["for ever"]]
    Bench(api, resource=resource, **scope).run(400.0)
    assert [{key: value for key, value in each.items() if value} for each in api.probes] == [asked]


def test_how_far_a_server_has_come_is_asked_once_after_a_break_and_not_in_peace() -> None:
    api = ScriptedApi()
    api.watches = [[300.0], [300.0], [300.0, Unavailable("reset")], *[[300.0]] * 5, ["for ever"]]
    bench = Bench(api).run(4000.0)
    assert [what for what, *_ in api.asked].count("version") == 1
    assert bench.reflector.lists == 1


@pytest.mark.parametrize("form", ["at once", "in the stream"])
def test_410_lists_again_and_tells_only_what_differs(form: str) -> None:
    api = ScriptedApi()
    gone = Gone("too old", status=410)
    api.lists = [
        Page([obj("a", 1), obj("b", 2), obj("c", 3), obj("d", 4)], "10", ""),
        Page([obj("a", 1), obj("b", 12, "blue"), obj("c", 13, "grey"), obj("e", 14)], "20", ""),
    ]
    api.watches = [[300.0, gone], ["for ever"]] if form == "in the stream" else [[300.0], gone, ["for ever"]]
    bench = Bench(api).run(500.0)
    assert bench.held == {"a": "red", "b": "blue", "e": "red"}
    assert bench.changes[4:] == [
        (Rec("b", "red"), Rec("b", "blue")),
        (Rec("c", "red"), None),
        (None, Rec("e", "red")),
        (Rec("d", "red"), None),
    ]
    assert bench.reflector.lists == 2
    assert [at for what, at, _ in api.asked if what == "list"] == [0.0, 302.5], "nodes are spread over 5 s"


def test_410_of_a_continue_token_starts_the_list_again_and_removes_nothing_meanwhile() -> None:
    api = ScriptedApi()
    first = Page([obj("a", 1), obj("b", 2)], "10", "")
    api.lists = [first, Page([obj("a", 1)], "20", "t"), Gone("token too old", status=410), Page([obj("b", 2)], "30", "")]
    api.watches = [Gone("too old", status=410), ["for ever"]]
    bench = Bench(api)
    held: list[dict[str, str]] = []
    original = api.list_page

    async def spy(*args: Any, **how: Any) -> Page:
        held.append(bench.held)
        return await original(*args, **how)

    api.list_page = spy  # type: ignore[method-assign]
    bench.run(60.0)
    assert held == [{}, *[{"a": "red", "b": "red"}] * 3]
    assert bench.held == {"b": "red"}
    assert bench.reflector.lists == 2


NAMELESS: Json = {"metadata": {"resourceVersion": "12"}, "colour": "red"}
REFUSED: dict[str, list[Any]] = {
    "400": [BadRequest("bad version", status=400)],
    "504 too large": [VersionTooLarge("too large", status=504)],
    "an event that is none": [BadEvent("garbage")],
    "one good event, then one that is none": [ev("MODIFIED", "a", 11), BadEvent("garbage")],
    "a nameless one is gone": [WatchEvent("DELETED", NAMELESS)],
}


@pytest.mark.parametrize("how", REFUSED)
def test_a_version_that_no_watch_can_go_on_from_is_dropped(how: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    api = ScriptedApi()
    api.lists = [Page([obj("a", 1), obj("b", 2)], "10", ""), Page([obj("a", 1)], "30", "")]
    api.watches = [REFUSED[how], REFUSED[how], REFUSED[how], ["for ever"]]
    bench = Bench(api, rng=lambda: 0.0).run(60.0)
    assert [(what, at) for what, at, _ in api.asked] == [
        ("list", 0.0),
        ("watch", 0.0),
        ("watch", 1.0),
        ("watch", 3.0),
        ("list", 7.0),
        ("watch", 15.0),
    ], "three watches first, and the list keeps its distance from the next one"
    assert api.asked[-1][2] == "30"
    assert set(bench.held) == {"a"} and bench.reflector.state == Synced()


BROKEN: dict[str, Callable[[ScriptedApi], None]] = {
    "list refused": lambda api: api.lists.__setitem__(0, Unavailable("refused")),
    "list 403": lambda api: api.lists.__setitem__(0, Forbidden("no", status=403)),
    "list 401": lambda api: api.lists.__setitem__(0, Unauthorized("who", status=401)),
    "list 404": lambda api: api.lists.__setitem__(0, NotFound("what", status=404)),
    "list 410": lambda api: api.lists.__setitem__(0, Gone("old", status=410)),
    "list 429": lambda api: api.lists.__setitem__(0, TooManyRequests("slower", retry_after=0.0)),
    "list bug": lambda api: api.lists.__setitem__(0, RuntimeError("bug")),
    "second page 410": lambda api: api.lists.__setitem__(slice(None), [*[Page([], "1", "t"), Gone("old", status=410)] * 5000]),
    "watch eof": lambda api: api.watches.__setitem__(0, []),
    "watch one event, eof": lambda api: api.watches.__setitem__(0, [ev("ADDED", "a", 11)]),
    "watch refused": lambda api: api.watches.__setitem__(0, Unavailable("html")),
    "watch 403": lambda api: api.watches.__setitem__(0, Forbidden("no", status=403)),
    "watch 410": lambda api: api.watches.__setitem__(0, Gone("old", status=410)),
    "watch 410 in stream": lambda api: api.watches.__setitem__(0, [ev("ADDED", "a", 11), Gone("old", status=410)]),
    "watch 429": lambda api: api.watches.__setitem__(0, TooManyRequests("slower", retry_after=0.0)),
    "watch 400": lambda api: api.watches.__setitem__(0, BadRequest("no", status=400)),
    "watch garbage": lambda api: api.watches.__setitem__(0, [ev("ADDED", "a", 11), BadEvent("garbage")]),
    "watch nameless": lambda api: api.watches.__setitem__(0, [WatchEvent("DELETED", NAMELESS)]),
    "watch bug": lambda api: api.watches.__setitem__(0, [KeyError("metadata")]),
    "watch eof after 6 s": lambda api: api.watches.__setitem__(0, [6.0]),
    "watch refused after 21 s": lambda api: api.watches.__setitem__(0, [21.0, Unavailable("reset")]),
    "watch 410 after 6 s": lambda api: api.watches.__setitem__(0, [6.0, Gone("old", status=410)]),
}


@pytest.mark.parametrize("how", BROKEN)
def test_however_broken_never_more_than_one_attempt_a_second(how: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    for luck in (0.0, 0.999):
        api = ScriptedApi()
        BROKEN[how](api)
        Bench(api, rng=lambda luck=luck: luck).run(600.0)
        times = api.requests()
        for first in range(len(times)):  # a list and its watch may come together, so one more than seconds passed
            for last in range(first, len(times)):
                assert last - first + 1 <= times[last] - times[first] + 2
        if "after 6 s" not in how:
            assert len(times) <= 90, "and in the long run much less"
        assert max(later - earlier for earlier, later in itertools.pairwise(times)) <= 30.0 + 5.0, "but it never gives up"


def test_the_delay_grows_to_15_to_30_seconds_and_starts_again_after_a_good_time() -> None:
    api = ScriptedApi()
    api.lists = [*[Unavailable("refused")] * 7, Page([], "10", "")]
    api.watches = [[20.0, Unavailable("reset")], ["for ever"]]
    Bench(api, rng=lambda: 0.0).run(200.0)
    times = api.attempts()
    assert [later - earlier for earlier, later in itertools.pairwise(times)] == [1, 2, 4, 8, 15, 15, 15, 0, 21]


def test_429_for_a_year_is_waited_out_for_a_minute_or_two_and_told_at_once() -> None:
    api = ScriptedApi()
    api.watches = [[300.0], TooManyRequests("slower", retry_after=31_536_000.0), ["for ever"]]
    bench = Bench(api).run(600.0)
    assert api.attempts() == [0.0, 0.0, 300.0, 390.0]
    assert bench.states == [(0.0, Synced()), (300.0, Degraded("the API server: 429 TooManyRequests")), (410.0, Synced())]


def test_before_the_first_list_trouble_is_told_at_once() -> None:
    api = ScriptedApi()
    api.lists = [Unavailable("list persistentvolumeclaims: connection refused"), Page([], "10", "")]
    bench = Bench(api)
    assert bench.reflector.state == Listing()
    bench.run(10.0)
    assert bench.states == [(0.0, Degraded("the API server: no answer that can be used; the log says more")), (1.5, Synced())]


def test_a_missing_right_is_told_with_verb_and_resource_and_retried() -> None:
    api = ScriptedApi()
    body = {"reason": "Forbidden", "message": 'User "x" cannot list resource "persistentvolumeclaims"'}
    api.lists = [*[from_status(403, body, what="list persistentvolumeclaims")] * 3, Page([], "10", "")]
    bench = Bench(api).run(60.0)
    assert [state for _, state in bench.states] == [Denied("list persistentvolumeclaims: 403 Forbidden"), Synced()]
    assert bench.reflector.has_synced


def test_a_watch_that_stays_broken_is_told_after_a_while_and_the_cache_stays() -> None:
    api = ScriptedApi()
    api.lists = [Page([obj("a", 1)], "10", "")]
    api.watches = [[100.0], *[Unavailable("down")] * 8, ["for ever"]]
    bench = Bench(api, rng=lambda: 0.0).run(400.0)
    (_, synced), (told_at, told), (well_at, well) = bench.states
    assert (synced, told, well) == (Synced(), Degraded("the API server: no answer that can be used; the log says more"), Synced())
    assert 130.0 <= told_at <= 131.0
    last_attempt = api.attempts()[-1]
    assert well_at == last_attempt + 20.0, "silence is good news once nobody can be about to refuse"
    assert bench.held == {"a": "red"} and bench.reflector.has_synced


@pytest.mark.parametrize("error", [Forbidden("list x: cannot list", status=403), NotFound("list x: no such thing", status=404)])
def test_an_optional_resource_that_is_not_to_be_had_is_off_until_it_is_to_be_had(error: ApiError, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody waits for it, and a right that is granted later needs no restart."""
    off = Off(error.shown, absent=isinstance(error, NotFound))

    async def main() -> None:
        api = ScriptedApi()
        api.lists = [error, error, Unavailable("down"), Page([obj("a", 1)], "10", "")]
        api.watches = [["for ever"]]
        bench = Bench(api, optional=True, rng=lambda: 0.5)
        waiting = asyncio.create_task(bench.reflector.wait_synced())
        running = asyncio.create_task(bench.reflector.run())
        assert await waiting is False
        assert (bench.states, len(api.asked)) == ([(0.0, off)], 1)
        await asyncio.sleep(899.0)
        assert (bench.states, len(api.asked)) == ([(0.0, off)], 3)
        await asyncio.sleep(2.0)
        assert bench.states == [(0.0, off), (900.0, Synced())]
        assert bench.held == {"a": "red"}
        running.cancel()

    run_virtual(main())
    (line,) = caplog.records
    assert (line.levelname, line.__dict__["fields"]["resource"], line.__dict__["fields"]["verb"]) == ("WARNING", str(CLAIMS), "list")


def test_an_optional_resource_is_not_given_up_for_trouble_or_once_it_was_there() -> None:
    api = ScriptedApi()
    api.lists = [Unavailable("down"), Page([obj("a", 1)], "10", ""), Forbidden("no", status=403), Page([obj("a", 1)], "10", "")]
    api.watches = [Gone("old", status=410), ["for ever"]]
    bench = Bench(api, optional=True).run(60.0)
    assert bench.reflector.lists == 2
    assert bench.held == {"a": "red"}


def test_an_odd_object_is_ignored_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    api = ScriptedApi()
    odd: Json = {"metadata": {"name": "odd", "namespace": "ns", "resourceVersion": "3"}}
    api.lists = [Page([obj("a", 1), odd, obj("b", 2)], "10", "")]
    api.watches = [[WatchEvent("MODIFIED", odd), ev("MODIFIED", "c", 12), "for ever"]]
    bench = Bench(api).run(1.0)
    assert set(bench.held) == set("abc")
    (line,) = caplog.records
    assert line.__dict__["fields"]["key"] == "ns/odd"


@pytest.mark.parametrize("odd", [None, 3, {}, {"metadata": None}, {"metadata": {"namespace": "ns"}}])
def test_an_object_without_a_name_costs_no_other(odd: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Nor is anything removed because of a list with such a one in it: it may be what is missed."""
    first, second, third = [obj("a", 1), odd, odd, obj("b", 2)], [obj("a", 1), odd], [obj("a", 1)]
    for lists, held in (([first, second], "abc"), ([first, second, third], "a")):
        caplog.clear()
        api = ScriptedApi()
        api.lists = [Page(items, "10", "") for items in lists]
        begins = [WatchEvent("MODIFIED", NAMELESS), ev("ADDED", "c", 13)]
        api.watches = [[*begins, Gone("too old", status=410)], *[Gone("too old", status=410)] * (len(lists) - 2), ["for ever"]]
        bench = Bench(api).run(100.0)
        assert (set(bench.held), bench.reflector.lists) == (set(held), len(lists))
        assert [line.message for line in caplog.records].count("An object cannot be read and is ignored") == 1


def test_a_listener_that_fails_costs_nobody_else_anything(caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("bug")

    api = ScriptedApi()
    api.lists = [Page([obj("a", 1)], "10", "")]
    bench = Bench(api, on_change=fail, on_state=fail).run(1.0)
    assert bench.held == {"a": "red"}
    assert [record.message for record in caplog.records] == ["Handling a change failed", "Reporting a state failed"]


def test_the_first_list_waits_after_its_first_page_if_that_is_asked_for() -> None:
    """And only that one, and only if there are more pages: a small cluster does not notice."""
    pages = [Page([obj("a", 1)], "10", "more"), Page([obj("b", 1)], "10", "")]
    for spread, first_list in ((0.0, [0.0, 0.0]), (10.0, [0.0, 5.0])):
        api = ScriptedApi()
        api.lists = [*pages, *pages]
        api.watches = [[30.0, Gone("compacted")], ["for ever"]]
        bench = Bench(api, start_spread=spread).run(60.0)
        at = [when for what, when, _ in api.asked if what != "watch"]
        assert at[:2] == first_list and at[2] == at[3] > 30.0
        assert bench.held.keys() == {"a", "b"}
    api = ScriptedApi()
    Bench(api, start_spread=10.0).run(20.0)
    assert api.attempts() == [0.0, 0.0]


def test_thousands_that_are_gone_at_once_leave_time_for_everything_else() -> None:
    api = ScriptedApi()
    api.lists = [Page([obj(f"n{number}", 1) for number in range(2_000)], "10", ""), Page([], "20", "")]
    api.watches = [[Gone("too old")], ["for ever"]]
    turns, seen, tasks = 0, [], []

    async def others() -> None:
        nonlocal turns
        for _ in range(1_000):
            turns += 1
            await asyncio.sleep(0)

    def note(change: Change[Rec]) -> None:
        if change.new is None:
            tasks.append(asyncio.create_task(others())) if not tasks else None
            seen.append(turns)

    Bench(api, on_change=note).run(30.0)
    assert len(seen) == 2_000
    assert len(set(seen)) >= 20
