"""Watches and lists by the label of claims: what enters, what leaves and how it is sent, many shards, bookmarks, lost history."""

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sidecar.kube.api import MERGE_PATCH
from sidecar.model import names
from tests.contract.claim_policy import ASKED, CLAIMS, LABEL, NODE, await_force, claim_with, in_force
from tests.contract.conftest import Server
from tests.contract.http_client import Answer, HttpClient, Json, http_client

_numbers = itertools.count(1)
ALL_SHARDS = f"{LABEL} in ({','.join(f'open.{shard:02x}' for shard in range(256))})"


@pytest.fixture(scope="module")
def http(server: Server) -> Iterator[HttpClient]:
    with http_client(server.kubeconfig) as http, in_force(http):
        yield http


def fresh() -> str:
    return f"watched-{next(_numbers)}"


def annotate(http: HttpClient, name: str, **notes: str | None) -> Answer:
    return http.send("PATCH", f"{CLAIMS}/{name}", {"metadata": {"annotations": notes}}, content=MERGE_PATCH)


def now(http: HttpClient) -> str:
    return str(http.send("GET", CLAIMS, limit="1").body["metadata"]["resourceVersion"])


def told(events: list[Json], name: str) -> list[tuple[str, str]]:
    """Type and label of each event about this claim."""
    about = [event for event in events if event["object"]["metadata"].get("name") == name]
    return [(event["type"], event["object"]["metadata"]["labels"][LABEL]) for event in about]


def test_a_late_claim_is_heard_by_its_node_alone(http: HttpClient) -> None:
    name, since = fresh(), now(http)
    http.send("POST", CLAIMS, claim_with(name))
    annotate(http, name, **{NODE: "n1"})
    annotate(http, name, **{ASKED: "d"})
    http.send("DELETE", f"{CLAIMS}/{name}")
    heard = {node: told(http.watch(CLAIMS, since, labelSelector=f"{LABEL}=node.{node}"), name) for node in ("n1", "n2")}
    assert heard == {"n1": [("ADDED", "node.n1"), ("MODIFIED", "node.n1"), ("MODIFIED", "node.n1")], "n2": []}


def test_what_leaves_is_sent_as_it_was_with_the_version_of_the_change(http: HttpClient) -> None:
    name, since = fresh(), now(http)
    http.send("POST", CLAIMS, claim_with(name))
    opened = annotate(http, name, **{ASKED: "d"})
    taken = annotate(http, name, **{NODE: "n1"})
    shard = f"{LABEL}=open.{opened.body['metadata']['uid'][-2:]}"
    heard = [event for event in http.watch(CLAIMS, since, labelSelector=shard) if event["object"]["metadata"]["name"] == name]
    assert [event["type"] for event in heard] == ["ADDED", "DELETED"]
    assert heard[0]["object"] == opened.body
    as_it_was = opened.body | {"metadata": opened.body["metadata"] | {"resourceVersion": taken.version}}
    assert heard[1]["object"] == as_it_was, "its annotations do not say who has taken it, and its label is the old one"


def test_an_owner_hears_the_same_change_as_a_birth(http: HttpClient) -> None:
    """Who selects both, by one watch, hears a change and nothing of leaving."""
    name, since = fresh(), now(http)
    http.send("POST", CLAIMS, claim_with(name))
    opened = annotate(http, name, **{ASKED: "d"}).labels[LABEL]
    taken = annotate(http, name, **{NODE: "n1"})
    (event,) = http.watch(CLAIMS, since, labelSelector=f"{LABEL}=node.n1", fieldSelector=f"metadata.name={name}")
    assert (event["type"], event["object"]) == ("ADDED", taken.body)
    both = told(http.watch(CLAIMS, since, labelSelector=f"{LABEL} in (node.n1,{opened})"), name)
    assert both == [("ADDED", opened), ("MODIFIED", "node.n1")]


def test_one_that_goes_from_node_to_node_leaves_the_one_and_enters_the_other(http: HttpClient) -> None:
    name, since = fresh(), now(http)
    http.send("POST", CLAIMS, claim_with(name, {NODE: "n1"}))
    annotate(http, name, **{NODE: "n2"})
    heard = {node: told(http.watch(CLAIMS, since, labelSelector=f"{LABEL}=node.{node}"), name) for node in ("n1", "n2")}
    assert heard == {"n1": [("ADDED", "node.n1"), ("DELETED", "node.n1")], "n2": [("ADDED", "node.n2")]}


def test_a_wish_that_is_overruled_does_not_leave(http: HttpClient) -> None:
    name, since = fresh(), now(http)
    http.send("POST", CLAIMS, claim_with(name, {NODE: "n1"}))
    http.send("PATCH", f"{CLAIMS}/{name}", {"metadata": {"labels": {LABEL: "node.n2"}}}, content=MERGE_PATCH)
    http.send("PATCH", f"{CLAIMS}/{name}", {"metadata": {"labels": None}}, content=MERGE_PATCH)
    heard = {node: told(http.watch(CLAIMS, since, labelSelector=f"{LABEL}=node.{node}"), name) for node in ("n1", "n2")}
    assert {kind for kind, _ in heard["n1"]} <= {"ADDED", "MODIFIED"} and heard["n2"] == []


def test_all_256_shards_in_one_selector(http: HttpClient) -> None:
    """They make 2,078 characters, and 2,608 in the address."""
    name, since = fresh(), now(http)
    http.send("POST", CLAIMS, claim_with(name))
    opened = annotate(http, name, **{ASKED: "d"})
    found = [item["metadata"]["name"] for item in http.send("GET", CLAIMS, labelSelector=ALL_SHARDS).body["items"]]
    assert name in found
    assert told(http.watch(CLAIMS, since, labelSelector=ALL_SHARDS), name) == [("ADDED", opened.labels[LABEL])]


def test_a_watch_that_hears_nothing_gets_bookmarks(server: Server, http: HttpClient) -> None:
    """Which tell how far the others have come since it began."""
    since = now(http)

    def change_another() -> None:
        with http_client(server.kubeconfig) as other:
            other.send("POST", CLAIMS, claim_with(fresh()))

    with ThreadPoolExecutor() as pool:
        watching = pool.submit(http.watch, CLAIMS, since, seconds=5, labelSelector=f"{LABEL}=node.nobody", allowWatchBookmarks="true")
        time.sleep(1)  # the watch has begun by then
        pool.submit(change_another).result()
        events = watching.result()
    assert {event["type"] for event in events} == {"BOOKMARK"}
    assert int(events[-1]["object"]["metadata"]["resourceVersion"]) > int(since)


def test_history_that_is_lost_is_said_also_to_who_selects(server: Server, http: HttpClient) -> None:
    name, since = fresh(), now(http)
    http.send("POST", CLAIMS, claim_with(name, {NODE: "n1"}))
    server.forget()
    await_force(http)
    refused = http.watch(CLAIMS, since, labelSelector=f"{LABEL}=node.n1")
    assert [(event["type"], event["object"]["code"], event["object"]["reason"]) for event in refused] == [("ERROR", 410, "Expired")]
    listed = http.send("GET", CLAIMS, labelSelector=f"{LABEL}=node.n1").body
    assert name in [item["metadata"]["name"] for item in listed["items"]]
    annotate(http, name, **{NODE: "n2"})
    (left,) = http.watch(CLAIMS, str(listed["metadata"]["resourceVersion"]), labelSelector=f"{LABEL}=node.n1")
    assert (left["type"], left["object"]["metadata"]["labels"]) == ("DELETED", {LABEL: names.claims_of_node("n1")})
