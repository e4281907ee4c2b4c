"""Claims that are older than the policy are labelled: those of the driver, each by one write, and what goes wrong is said."""

import asyncio
import json
from collections.abc import Callable, Container, Mapping
from typing import Any

import pytest

from hack.sim.cluster import ApiServer, Call, InProcessApi, claim_policy
from sidecar.commands import label
from sidecar.commands.label import Labelled, NotLabelled, due
from sidecar.kube.api import CLAIMS, CLASSES, NAMESPACES
from sidecar.kube.errors import ApiError, Forbidden, Invalid, TooManyRequests, Unavailable
from sidecar.model import names
from sidecar.model.objects import Class
from tests.contract.objects import claim, storage_class
from tests.harness.cluster_tools import new_cluster

DRIVER = "driver.example"
OPEN = {names.STORAGE_PROVISIONER: DRIVER}


def told(**changed: str) -> Labelled:
    fields = {"namespace": "default", "name": "a", "provisioner": DRIVER, "class_name": "fast", "has": "", "should_have": "waiting"}
    return Labelled(**(fields | changed))


@pytest.mark.parametrize(
    ("claim", "is_due"),
    [
        pytest.param(told(), True, id="without-a-label"),
        pytest.param(told(has="node.n1"), True, id="with-one-that-lies"),
        pytest.param(told(has="waiting"), False, id="with-the-right-one"),
        pytest.param(told(provisioner=""), True, id="late-and-not-asked-for"),
        pytest.param(told(provisioner="", class_name="other"), False, id="of-another-class"),
        pytest.param(told(provisioner="other"), False, id="of-another-driver-though-the-class-is-ours"),
        pytest.param(told(provisioner="", class_name=""), False, id="of-no-class"),
    ],
)
def test_which_claims_are_due(claim: Labelled, is_due: bool) -> None:
    classes = [Class.of(storage_class("fast") | {"provisioner": DRIVER}), Class.of(storage_class("other") | {"provisioner": "other"})]
    assert bool(due([claim], DRIVER, classes)) is is_due


# --- at work --------------------------------------------------------------------------------------------------------------


def cluster_with(count: int, *, policy: bool = True, notes: Mapping[str, str] = OPEN) -> ApiServer:
    cluster = new_cluster()
    cluster.create(CLASSES, storage_class("fast"))
    for number in range(count):
        obj = claim(f"c{number:03}")
        obj["metadata"]["annotations"] = dict(notes)
        cluster.create(CLAIMS, obj, namespace="default")
    if policy:
        for resource, written in zip((claim_policy.POLICIES, claim_policy.BINDINGS), claim_policy.written(), strict=True):
            cluster.create(resource, written)
    return cluster


def labels(cluster: ApiServer) -> list[str]:
    return [item["metadata"].get("labels", {}).get(names.CLAIM_LABEL, "")[:5] for item in cluster.store.all_of(CLAIMS)]


class Asked:
    """Counts writes, and answers some as it is told: by number, or by namespace."""

    def __init__(
        self, cluster: ApiServer, refuse: Callable[[int], ApiError | None] = lambda _: None, *, refuses_in: Container[str] = ()
    ) -> None:
        self.patches = 0
        self._refuse = refuse
        self._refuses_in = refuses_in
        self.api = InProcessApi(cluster, before=self._before)

    async def _before(self, call: Call) -> None:
        if call.verb == "patch":
            self.patches += 1
            if error := self._refuse(self.patches):
                raise error
            if call.namespace in self._refuses_in:
                raise Invalid("admission webhook denied the request: owner is missing", status=422)

    def label(self, **more: Any) -> int:
        return asyncio.run(label.label(self.api, DRIVER, **{"dry_run": False} | more))


def test_each_is_written_once_and_a_second_run_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = cluster_with(250)
    first, second = Asked(cluster), Asked(cluster)
    assert (first.label(), first.patches) == (0, 250)
    assert set(labels(cluster)) == {"open."}
    progress = [line for line in capsys.readouterr().out.splitlines() if line.startswith("labelled")]
    assert progress == ["labelled 100 of 250", "labelled 200 of 250", "labelled 250 of 250"]
    assert (second.label(), second.patches) == (0, 0)


def test_a_dry_run_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    asked = Asked(cluster_with(2, notes={names.SELECTED_NODE: "n1"} | OPEN))
    assert (asked.label(dry_run=True), asked.patches) == (0, 0)
    assert capsys.readouterr().out.splitlines()[0] == "would label claim default/c000: node.n1"


def test_without_the_policy_it_stops_at_the_first_one() -> None:
    asked = Asked(cluster_with(3, policy=False))
    with pytest.raises(NotLabelled, match=r"default/c000: is components/scoped-watches installed"):
        asked.label()
    assert asked.patches == 1


def test_one_that_fails_is_told_and_the_others_are_labelled(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = cluster_with(3)
    refused = Forbidden("patch persistentvolumeclaims default/c001: not this one", status=403)
    assert Asked(cluster, lambda number: refused if number == 2 else None).label() == 1
    assert labels(cluster) == ["open.", "", "open."]
    assert "claim default/c001: patch persistentvolumeclaims default/c001: not this one; it takes the right" in capsys.readouterr().err


@pytest.mark.parametrize("error", [Unavailable("the API server is away"), TooManyRequests("busy", status=429, retry_after=0.0)])
def test_what_fails_for_all_is_not_tried_on_all(error: ApiError) -> None:
    asked = Asked(cluster_with(20), lambda _: error)
    with pytest.raises(type(error)):
        asked.label()
    assert asked.patches == 5


def spread(cluster: ApiServer, namespaces: int, count: int) -> list[str]:
    """More claims, in namespaces of which the names come first and last."""
    made = [f"{letter}{number:03}" for letter in "az" for number in range(namespaces)]
    for namespace in made:
        cluster.create(NAMESPACES, {"metadata": {"name": namespace}})
        for number in range(count):
            obj = claim(f"c{number:03}")
            obj["metadata"]["annotations"] = OPEN
            cluster.create(CLAIMS, obj, namespace=namespace)
    return made


def test_claims_that_nobody_can_write_keep_no_other_namespace_from_its_labels(capsys: pytest.CaptureFixture[str]) -> None:
    """As where a policy wants of each claim what these do not have. However often the command is run, they come in the same order."""
    cluster = cluster_with(3, policy=False)
    bad = set(spread(cluster, 6, 7))
    for resource, written in zip((claim_policy.POLICIES, claim_policy.BINDINGS), claim_policy.written(), strict=True):
        cluster.create(resource, written)
    asked = Asked(cluster, refuses_in=bad)
    assert (asked.label(), asked.patches) == (1, 3 + len(bad) * 5)
    assert labels(cluster).count("open.") == 3
    said = capsys.readouterr()
    assert "2 more claims of namespace a000 were not tried, after 5 failures in a row there" in said.err
    assert f"{len(bad) * 7} claims have no label" in said.err and "labelled 3 of 87" in said.out


def test_only_the_claims_of_one_namespace_if_one_is_named() -> None:
    cluster = cluster_with(2, policy=False)
    spread(cluster, 1, 3)
    for resource, written in zip((claim_policy.POLICIES, claim_policy.BINDINGS), claim_policy.written(), strict=True):
        cluster.create(resource, written)
    asked = Asked(cluster)
    assert (asked.label(namespace="a000"), asked.patches) == (0, 3)
    assert labels(cluster) == ["open."] * 3 + [""] * 5


def rows(capsys: pytest.CaptureFixture[str]) -> list[Any]:
    document = json.loads(capsys.readouterr().out)
    assert document["driver"] == DRIVER
    return [(row["name"], row["label"][:5], row["result"], row.get("error", "")) for row in document["claims"]]


def test_programs_read_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = cluster_with(2)
    assert Asked(cluster).label(dry_run=True, form="json") == 0
    assert rows(capsys) == [(name, "open.", "would be labelled", "") for name in ("c000", "c001")]
    assert Asked(cluster, lambda number: Forbidden("not this one", status=403) if number == 2 else None).label(form="json") == 1
    assert rows(capsys) == [("c000", "open.", "labelled", ""), ("c001", "open.", "failed", "not this one")]
    assert Asked(cluster).label(form="json") == 0
    assert rows(capsys) == [("c001", "open.", "labelled", "")]
    assert Asked(cluster).label(form="json") == 0
    assert rows(capsys) == []
