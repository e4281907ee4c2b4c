"""When the gate stands and when it opens, what it consists of, which pods are held: by the rule, and against a simulated API server."""

import asyncio
import copy
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.sim.cluster import Call
from sidecar.drain import gate
from sidecar.drain.assess import Assessment
from sidecar.drain.gate import Build, Clear, GateView, HeldPods, Leave, Open, decide
from sidecar.drain.gate_io import TRUSTED, Gate, open_gate
from sidecar.drain.marks import Marks, NodePolicy
from sidecar.drain.node_io import Picture
from sidecar.drain.settings import Settings
from sidecar.drain.words import Intent, Status
from sidecar.kube.api import BUDGETS, DEPLOYMENTS, MERGE_PATCH, NODES
from sidecar.kube.errors import ApiError, Forbidden, NotFound, Unavailable
from sidecar.model import names
from sidecar.model.nodes import Budget, Node, Pod
from sidecar.model.objects import Json
from tests.harness.drain.own_node import Bench
from tests.harness.drain.samples import DRIVER, NODE, idle, judged, marks, node, owner, pod, snapshot, stamp, taint, used
from tests.harness.virtual import virtual

TRUE, FALSE, UNKNOWN = Status.TRUE, Status.FALSE, Status.UNKNOWN
REBOOT, RETIRE = Intent.REBOOT, Intent.RETIRE


SETTINGS = Settings(NODE, DRIVER, "storage", "1", judges=True, gate=True, gate_image="registry.example.com/pause:3")


def view(of: Node | None = None, **changes: Any) -> GateView:
    """A node that is being drained, with blockers and no gate yet."""
    base = GateView(
        node=of or node(),
        settings=SETTINGS,
        draining=True,
        verdict=FALSE,
        holds_volumes=True,
        overridden=False,
        budget=None,
        deployment=None,
        guarded=False,
    )
    return replace(base, **changes)


def stored(of: Node | None = None) -> tuple[Json, Json]:
    """The gate as it should be, as the server has it."""
    made = copy.deepcopy((gate.budget_of(view(of)), gate.deployment_of(view(of))))
    budget, deployment = (obj | {"metadata": obj["metadata"] | {"uid": "given", "resourceVersion": "1"}} for obj in made)
    return budget, deployment


def standing(of: Node | None = None, **changes: Any) -> GateView:
    budget, deployment = stored()
    return view(of, **{"budget": budget, "deployment": deployment} | changes)


# --- when it stands ---------------------------------------------------------------------------------------------------

PEACE: dict[str, Any] = {"draining": False}


@pytest.mark.parametrize(
    ("changes", "shut"),
    [
        pytest.param({}, True, id="something blocks"),
        pytest.param({"holds_volumes": None}, True, id="something blocks, though not all is known"),
        pytest.param(PEACE, True, id="in peace, and something blocks"),
        pytest.param({**PEACE, "verdict": TRUE}, True, id="in peace, whatever the verdict: it may change before a drain"),
        pytest.param({**PEACE, "verdict": UNKNOWN}, True, id="in peace, and the verdict is not known"),
        pytest.param({"verdict": TRUE}, False, id="a drain begins, and nothing blocks"),
        pytest.param({**PEACE, "holds_volumes": False, "verdict": TRUE}, False, id="nothing is here"),
        pytest.param({"overridden": True}, False, id="overridden"),
        pytest.param({"overridden": True, "verdict": UNKNOWN}, False, id="overridden, whatever is not known"),
        pytest.param({"verdict": UNKNOWN}, None, id="a drain, and nobody knows"),
        pytest.param({**PEACE, "verdict": UNKNOWN, "holds_volumes": None}, None, id="in peace, and nobody knows what is here"),
        pytest.param({**PEACE, "verdict": UNKNOWN, "holds_volumes": False}, None, id="in peace, and the verdict alone is not known"),
        pytest.param({**PEACE, "verdict": TRUE, "holds_volumes": None}, None, id="in peace, True, and nobody knows what is here"),
    ],
)
def test_when_the_gate_stands(changes: dict[str, Any], shut: bool | None) -> None:
    """None: what is there stays, and nothing is built."""
    without, with_gate, half = decide(view(**changes)), decide(standing(**changes)), decide(standing(deployment=None, **changes))
    if shut is None:
        assert isinstance(without, Leave) and isinstance(with_gate, Leave) and isinstance(half, Leave)
    elif shut:
        assert isinstance(without, Build) and [obj["kind"] for obj in without.objects] == ["PodDisruptionBudget", "Deployment"]
        assert isinstance(half, Build) and [obj["kind"] for obj in half.objects] == ["Deployment"] and isinstance(with_gate, Leave)
    else:
        assert isinstance(with_gate, Open) and [obj["kind"] for obj in with_gate.objects] == ["PodDisruptionBudget", "Deployment"]
        assert isinstance(half, Open) and isinstance(without, Leave)


STATUSES = st.sampled_from(Status)


@given(STATUSES, st.booleans(), st.booleans(), st.booleans(), st.sampled_from([None, True, False]), st.booleans())
def test_ignorance_never_opens_a_gate(
    verdict: Status, has_budget: bool, has_guard: bool, draining: bool, holds: bool | None, ready: bool
) -> None:
    budget, deployment = stored()
    have: dict[str, Any] = {"budget": budget if has_budget else None, "deployment": deployment if has_guard else None}
    decision = decide(view(verdict=verdict, draining=draining, holds_volumes=holds, guarded=ready, **have))
    if isinstance(decision, Open):
        assert verdict is TRUE and (draining or holds is False)
    if isinstance(decision, Build):
        assert verdict is FALSE or (holds is True and not draining)


@pytest.mark.parametrize(
    ("found", "assumed", "intents"),
    [
        pytest.param(marks(annotations={names.DRAIN_INTENT: "retire"}), REBOOT, {RETIRE}, id="retire is announced"),
        pytest.param(marks(annotations={names.DRAIN_INTENT: "reboot"}, cordoned=True), RETIRE, {REBOOT}, id="reboot is announced"),
        pytest.param(marks(annotations={names.DRAIN_INTENT: "reboot"}), REBOOT, {REBOOT, RETIRE}, id="for a cordon to come"),
        pytest.param(marks(cordoned=True), RETIRE, {REBOOT, RETIRE}, id="nobody announces anything: it may be either"),
        pytest.param(marks(cordoned=True), REBOOT, {REBOOT}, id="the flag assumes a reboot"),
        pytest.param(marks(annotations={names.DRAIN_INTENT: "rebot"}, cordoned=True), REBOOT, {REBOOT, RETIRE}, id="a wrong word"),
        pytest.param(marks(cordoned=True, policy=NodePolicy.EVACUATE), REBOOT, {REBOOT, RETIRE}, id="a policy that says something"),
        pytest.param(
            marks(cordoned=True, policy=NodePolicy.EVACUATE, before=marks(cordoned=True, now=0.0)), REBOOT, {REBOOT, RETIRE}, id="it lasts"
        ),
    ],
)
def test_whose_verdicts_have_to_be_true(found: Marks, assumed: Intent, intents: set[Intent]) -> None:
    assert set(gate.counting(found, assumed)) == intents
    for drain in Status:
        for retire in Status:
            answers = {{REBOOT: drain, RETIRE: retire}[intent] for intent in intents}
            told = gate.verdict_of(judged(drain=drain, retire=retire), gate.counting(found, assumed))
            assert told is (FALSE if FALSE in answers else UNKNOWN if UNKNOWN in answers else TRUE)


# --- whether it holds -------------------------------------------------------------------------------------------------


def placed(**changes: Any) -> Json:
    """The Deployment with another pod in it."""
    _, deployment = stored()
    deployment["spec"]["template"]["spec"] |= changes
    return deployment


def terms(*of: Json) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(of)}}}


def named(*values: str, **more: Any) -> Json:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(values)}], **more}


ANYWHERE = {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"affinity": None}, id="no affinity"),
        pytest.param({"affinity": terms(named("n2"))}, id="another node"),
        pytest.param({"affinity": terms(named("n1", "n2"))}, id="two nodes"),
        pytest.param({"affinity": terms(named("n1"), ANYWHERE)}, id="one more term"),
        pytest.param({"nodeName": "n2"}, id="bound to another node"),
        pytest.param({"nodeSelector": {"kubernetes.io/hostname": "n2"}}, id="a selector that this node does not match"),
        pytest.param({"tolerations": None}, id="no tolerations"),
        pytest.param({"tolerations": [{"key": names.CORDON_TAINT, "operator": "Exists"}]}, id="it would not outlast a node's silence"),
    ],
)
def test_a_gate_whose_guard_would_run_elsewhere_or_nowhere_is_made_anew(changes: Json) -> None:
    moved = placed(**changes)
    assert decide(standing(deployment=moved)) == Clear((moved,), "somebody has changed the gate so that it holds nobody")
    assert isinstance(decide(standing(deployment=moved, verdict=UNKNOWN)), Leave)


def test_a_budget_that_lets_go_and_a_deployment_that_sleeps_are_made_anew() -> None:
    budget, deployment = stored()
    for change in ({"minAvailable": 0}, {"selector": {}}):
        loose = budget | {"spec": budget["spec"] | change}
        found = decide(view(budget=loose, deployment=deployment))
        assert isinstance(found, Clear) and found.objects == (loose,)
    asleep = deployment | {"spec": deployment["spec"] | {"replicas": 0}}
    assert isinstance(decide(view(budget=budget, deployment=asleep)), Clear)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"affinity": terms(named("n1", **ANYWHERE)) | {"podAntiAffinity": {}}}, id="an affinity that says more"),
        pytest.param({"nodeName": "n1"}, id="bound to this node"),
        pytest.param({"nodeSelector": {"zone": "a"}}, id="a selector that this node matches"),
        pytest.param({"schedulerName": "x", "priorityClassName": "y", "dnsPolicy": "ClusterFirst"}, id="other fields"),
        pytest.param({"containers": [{"name": "guard", "image": "other"}]}, id="another image"),
    ],
)
def test_what_others_add_to_the_gate_is_no_reason_to_make_it_anew(changes: Json) -> None:
    """Made anew it would be open for a moment, again and again, under a drainer that waits."""
    at = node(labels={"zone": "a", "rack": "7"})
    assert isinstance(decide(standing(at, deployment=placed(**changes), guarded=True)), Leave)


EMPTIED = (taint(names.CORDON_TAINT), taint(names.EVACUATE_TAINT, "retire"), taint(names.EVACUATE_TAINT, "retire", "NoExecute"))
LASTING = (taint("dedicated", "db"), taint("gpu", effect="NoExecute"))
ENDS = (*(taint(key) for key in names.RETIRING_TAINTS), taint("node.kubernetes.io/out-of-service", effect="NoExecute"))


def guard(of: Node | None = None) -> Pod:
    """The pod that the Deployment's controllers would make."""
    deployment = gate.deployment_of(view(of))
    template = deployment["spec"]["template"]
    meta = template["metadata"] | {"name": "guard", "namespace": deployment["metadata"]["namespace"]}
    return Pod.of({"metadata": meta, "spec": template["spec"]})


def test_the_guard_gets_onto_the_node_it_guards_and_stays_though_the_node_is_silent() -> None:
    silent = tuple(taint(key, effect="NoExecute") for key in names.SILENCE_TAINTS)
    for tainted in [(), EMPTIED, LASTING, EMPTIED + LASTING]:
        assert guard(node(taints=tainted)).tolerates((*tainted, *EMPTIED, *silent))
    for end in ENDS:
        assert not guard(node(taints=(end, *LASTING))).tolerates((end,)), "drainers pass over pods that tolerate it"
    tolerations = gate.deployment_of(view())["spec"]["template"]["spec"]["tolerations"]
    assert not [item for item in tolerations if "tolerationSeconds" in item]


@pytest.mark.parametrize("lasting", LASTING, ids=str)
def test_a_gate_whose_guard_cannot_come_back_is_made_anew_and_then_let_be(lasting: Any) -> None:
    budget, deployment = stored()
    at = node(taints=(*EMPTIED, lasting))
    assert decide(standing(at)) == Clear(
        (deployment,), "there is no guard pod, and none can start: the node has a taint that the gate does not tolerate"
    )
    for holding in ({"guarded": True}, {"deployment": deployment | {"status": {"readyReplicas": 1}}}, {"verdict": UNKNOWN}):
        assert isinstance(decide(standing(at, **holding)), Leave)
    anew = decide(view(at, budget=budget))
    assert isinstance(anew, Build) and isinstance(decide(standing(at, deployment=anew.objects[0])), Leave)
    for passing in (*EMPTIED, *ENDS, taint("node.kubernetes.io/not-ready", effect="NoExecute"), taint("spot", effect="PreferNoSchedule")):
        assert isinstance(decide(standing(node(taints=(passing,)))), Leave)


def test_a_gate_that_is_still_being_deleted_is_waited_for() -> None:
    budget, deployment = stored()
    leaving = deployment | {"metadata": deployment["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert isinstance(decide(view(deployment=leaving)), Leave)
    found = decide(view(budget=budget, deployment=leaving, verdict=TRUE))
    assert isinstance(found, Open) and found.objects == (budget,)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(view(node("n2")), id="another node"),
        pytest.param(view(node(uid="uid-of-another")), id="another machine under the name"),
        pytest.param(view(settings=replace(SETTINGS, driver="other.example.com")), id="another driver"),
    ],
)
def test_drain_E3_the_budget_holds_its_own_guard_and_no_other(other: GateView) -> None:
    mine = Budget.of(gate.budget_of(view()))
    template = gate.deployment_of(other)["spec"]["template"]
    theirs = Pod.of({"metadata": template["metadata"] | {"name": "g", "namespace": "storage"}, "spec": template["spec"]})
    assert mine.covers(guard()) and not mine.covers(theirs)
    assert gate.budget_of(other)["metadata"]["name"] != gate.budget_of(view())["metadata"]["name"]


def test_each_object_goes_with_the_node_says_how_to_get_past_it_and_is_taken_by_the_server() -> None:
    bench_objects = (gate.budget_of(view()), gate.deployment_of(view()))
    for obj in bench_objects:
        assert obj["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-n1"}]
        why = obj["metadata"]["annotations"][f"{names.GROUP}/why"]
        assert all(word in why for word in ("node reboot n1", "node retire n1", "explain node n1", names.FORCE_DRAIN, "uninstall"))
    spec = bench_objects[1]["spec"]["template"]["spec"]
    assert "volumes" not in spec and "priorityClassName" not in spec and "nodeName" not in spec


# --- which pods are held ----------------------------------------------------------------------------------------------

DB = pod("db-0", "data-0")
CORDONED = marks(cordoned=True)


@pytest.mark.parametrize(
    ("found", "told", "pods", "overridden", "listed", "purpose"),
    [
        pytest.param(judged(), marks(), [DB], False, [], "", id="nobody drains the node"),
        pytest.param(judged(), CORDONED, [DB], False, ["apps/db-0"], "retire, assumed", id="nobody says what for"),
        pytest.param(
            judged(), marks(annotations={names.DRAIN_INTENT: "retire"}), [DB], False, ["apps/db-0"], "retire, annotation", id="retire"
        ),
        pytest.param(
            judged(), marks(annotations={names.DRAIN_INTENT: "reboot"}, cordoned=True), [DB], False, [], "reboot, annotation", id="reboot"
        ),
        pytest.param(judged(), CORDONED, [DB], True, [], "retire, assumed", id="overridden"),
        pytest.param(judged(), CORDONED, [DB, pod("new", "data-0")], False, ["apps/db-0", "apps/new"], "retire, assumed", id="began since"),
        pytest.param(judged(), CORDONED, [pod("web", "other")], False, [], "retire, assumed", id="a pod without such a volume"),
        pytest.param(judged(), CORDONED, [replace(DB, deleting_since=stamp())], False, [], "retire, assumed", id="it ends by itself"),
        pytest.param(judged(), CORDONED, [replace(DB, owner=owner("DaemonSet"))], False, [], "retire, assumed", id="no drain evicts it"),
        pytest.param(judged(used(pods=(replace(DB, owner=None),))), CORDONED, [DB], False, ["apps/db-0"], "retire, assumed", id="bare pod"),
        pytest.param(judged(idle()), CORDONED, [pod("web", "other")], False, [], "retire, assumed", id="an idle volume holds no pod"),
    ],
)
def test_which_pods_are_held(found: Assessment, told: Marks, pods: list[Pod], overridden: bool, listed: list[str], purpose: str) -> None:
    held = gate.held(found, told, pods, assumed=RETIRE, overridden=overridden)
    assert (list(held.pods), held.purpose, bool(held.because)) == (
        listed,
        purpose,
        bool(purpose) and not overridden and "reboot" not in purpose,
    )


def test_what_is_held_says_for_what_why_and_what_to_do() -> None:
    held = gate.held(judged(), CORDONED, [DB], assumed=RETIRE, overridden=False)
    for words in ("nobody announced", "retire is assumed", "node reboot n1", "node retire n1", "VolumeInUse", names.FORCE_DRAIN):
        assert words in held.because
    unknown = gate.held(judged(drain=UNKNOWN, retire=UNKNOWN), CORDONED, [DB], assumed=RETIRE, overridden=False)
    assert unknown.because and HeldPods().as_json() == {"held": [], "heldCount": 0, "heldBecause": "", "drainFor": ""}


# --- against a simulated API server -----------------------------------------------------------------------------------


class Scene:
    """One process, whose judgement a test sets."""

    def __init__(self, bench: Bench, **settings: Any) -> None:
        told = {"judges": True, "gate": True, "gate_image": "pause", **settings}
        self.bench, self.settings = bench, Settings(NODE, DRIVER, "default", "1", **told)
        self.gate = Gate(bench.kube, self.settings, clock=bench.clock)
        self.cordoned, self.status, self.overridden = True, FALSE, False
        self.pods: list[Pod] = []

    async def look(self) -> gate.Decision:
        here = await self.bench.node()
        found = judged(used(), uid=here.uid, drain=self.status, retire=self.status)
        picture = Picture(here, marks(cordoned=self.cordoned, uid=here.uid), snapshot(), found)
        return await self.gate.update(picture, self.pods, overridden=self.overridden)

    async def there(self) -> list[str]:
        return [kind.kind for kind in (BUDGETS, DEPLOYMENTS) for _ in (await self.bench.you.list_page(kind)).items]

    async def name(self) -> str:
        return names.guard(NODE, (await self.bench.node()).uid, DRIVER)


SHUT = ["PodDisruptionBudget", "Deployment"]


async def scene(**settings: Any) -> Scene:
    bench = Bench()
    await bench.node()
    return Scene(bench, **settings)


@virtual
async def test_a_gate_is_built_opens_and_is_built_again() -> None:
    it = await scene()
    for status, there in [(FALSE, SHUT), (UNKNOWN, SHUT), (TRUE, []), (FALSE, SHUT)]:
        it.status = status
        await it.look()
        assert await it.there() == there
    it.bench.calls.clear()
    await it.look()
    await it.look()
    assert it.bench.asked() == ["get poddisruptionbudgets", "get deployments"], "and is read again once, not with each look"


@pytest.mark.parametrize("opens", [False, True], ids=["built", "opened"])
@pytest.mark.parametrize("kind", [BUDGETS, DEPLOYMENTS], ids=["first", "second"])
@pytest.mark.parametrize("how", ["refused", "not answered"])
@virtual
async def test_a_kill_or_a_refusal_between_its_two_writes_is_made_good_by_the_next_process(opens: bool, kind: Any, how: str) -> None:
    it = await scene()
    if opens:
        await it.look()
        it.status = TRUE
    verb = "delete" if opens else "create"
    if how == "refused":
        it.bench.refuse = lambda call: Forbidden("no", status=403) if (call.verb, call.resource) == (verb, kind) else None
    else:
        it.bench.lose = lambda call: (call.verb, call.resource) == (verb, kind)
    with pytest.raises(ApiError):
        await it.look()
    if await it.there() == ["Deployment"]:
        assert opens, "a guard without a budget holds nobody: it is never built first"
    it.bench.refuse, it.bench.lose = lambda _: None, lambda _: False
    it.gate = Gate(it.bench.kube, it.settings, clock=it.bench.clock)
    await it.look()
    assert await it.there() == ([] if opens else SHUT)


@virtual
async def test_the_same_process_goes_on_after_a_refusal_and_an_answer_that_was_lost() -> None:
    it = await scene()
    it.bench.lose = lambda call: call.verb == "create" and call.resource == BUDGETS
    with pytest.raises(Unavailable):
        await it.look()
    it.bench.lose = lambda _: False
    await it.look()
    assert await it.there() == SHUT
    await it.look()
    assert it.gate.stands


async def _picture(it: Scene) -> Picture:
    here = await it.bench.node()
    return Picture(here, marks(cordoned=True, uid=here.uid), snapshot(), judged(used(), uid=here.uid, drain=TRUE, retire=TRUE))


@virtual
async def test_another_machine_under_the_name_gets_a_gate_of_its_own_and_that_of_the_earlier_one_is_not_taken_for_it() -> None:
    it = await scene()
    await it.look()
    earlier = await it.name()
    await it.bench.you.delete(NODES, NODE)
    await it.look()
    found = {obj["metadata"]["name"] for obj in (await it.bench.you.list_page(BUDGETS)).items}
    assert {await it.name(), earlier} >= found and await it.name() in found


@virtual
async def test_an_object_that_came_under_the_name_meanwhile_is_not_deleted() -> None:
    it = await scene()
    await it.look()
    name = await it.name()

    def replaced(call: Call) -> None:
        if call.verb == "delete" and call.resource == BUDGETS:
            it.bench.cluster.delete(BUDGETS, name, namespace="default")
            body = {"metadata": {"name": name}, "spec": {"minAvailable": 0, "selector": {}}}
            it.bench.cluster.create(BUDGETS, body, namespace="default")

    it.status, it.bench.refuse = TRUE, replaced
    await it.look()
    assert await it.there() == ["PodDisruptionBudget"]


@virtual
async def test_a_gate_that_somebody_deletes_is_seen_within_a_minute_and_at_once_when_its_guard_vanishes() -> None:
    it = await scene()
    await it.look()
    await it.look()
    labels = gate.labels((await it.bench.node()).uid, DRIVER)
    it.pods = [pod("guard", namespace="default", labels=labels)]
    await it.look()
    for kind in (BUDGETS, DEPLOYMENTS):
        await it.bench.you.delete(kind, await it.name(), namespace="default")
    await it.look()
    assert await it.there() == [], "nobody watches it"
    it.pods = []
    await it.look()
    assert await it.there() == SHUT
    await it.bench.you.delete(BUDGETS, await it.name(), namespace="default")
    await asyncio.sleep(TRUSTED)
    await it.look()
    assert await it.there() == SHUT


@virtual
async def test_a_guard_that_became_ready_since_the_gate_was_read_is_not_taken_from_under_a_drainer() -> None:
    it = await scene()
    await it.look()
    await it.look()
    await it.bench.you.patch(
        DEPLOYMENTS, await it.name(), {"status": {"readyReplicas": 1}}, content_type=MERGE_PATCH, namespace="default", subresource="status"
    )
    tainted = [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]
    await it.bench.you.patch(NODES, NODE, {"spec": {"taints": tainted}}, content_type=MERGE_PATCH)
    assert isinstance(await it.look(), Leave)
    assert await it.there() == SHUT


@pytest.mark.parametrize("kinds", [(BUDGETS, DEPLOYMENTS), (DEPLOYMENTS,)], ids=["both", "the guard's"])
@virtual
async def test_who_takes_it_away_for_ever_has_no_node_write_for_ever(kinds: tuple[Any, ...]) -> None:
    it, said = await scene(), set[str]()
    await it.look()
    it.bench.calls.clear()
    guard_ = pod("guard", namespace="default", labels=gate.labels((await it.bench.node()).uid, DRIVER))
    for _ in range(1200):
        for kind in kinds:
            with suppress(NotFound):
                await it.bench.you.delete(kind, await it.name(), namespace="default")
        for it.pods in ([guard_], []):
            said.add((await it.look()).why)
        await asyncio.sleep(1)
    assert len(it.bench.asked("create", "delete")) <= 54 and any("again and again" in why for why in said)
    await asyncio.sleep(120)
    await it.look()
    assert await it.there() == SHUT


@virtual
async def test_switched_off_it_takes_away_what_an_earlier_process_has_built_and_needs_no_right_to_look() -> None:
    it = await scene()
    await it.look()
    off = Scene(it.bench, gate=False)
    await off.look()
    assert await off.there() == []
    it.bench.calls.clear()
    await off.look()
    assert it.bench.asked() == [], "it is looked for once"
    bare = Scene(it.bench, gate=False)
    it.bench.refuse = lambda call: Forbidden("no", status=403) if call.resource in (BUDGETS, DEPLOYMENTS) else None
    assert isinstance(await bare.look(), Leave)
    with pytest.raises(Forbidden):
        await Scene(it.bench).look()


@virtual
async def test_a_dry_run_builds_nothing_and_what_is_overridden_opens() -> None:
    dry = await scene(dry_run=True)
    assert isinstance(await dry.look(), Build) and await dry.there() == []
    it = Scene(dry.bench)
    await it.look()
    it.overridden, it.status = True, UNKNOWN
    await it.look()
    assert await it.there() == []


@virtual
async def test_a_gate_holds_as_long_as_its_guard_is_ready() -> None:
    it = await scene()
    picture, labels = await _picture(it), gate.labels((await it.bench.node()).uid, DRIVER)
    ready = pod("guard", namespace="default", labels=labels)
    assert it.gate.why_loose(picture, [ready]) == ""
    for other in (
        replace(ready, ready=False),
        replace(ready, namespace="elsewhere"),
        replace(ready, deleting_since=stamp()),
        *(replace(ready, labels=labels | {key: "another"}) for key in labels),
    ):
        assert "not ready" in it.gate.why_loose(picture, [other])


@virtual
async def test_a_neighbour_opens_the_gate_of_another_node_and_says_whether_there_was_one() -> None:
    it = await scene()
    await it.look()
    here = await it.bench.node()
    answers = [await open_gate(it.bench.kube, here, DRIVER, namespace="default") for _ in range(2)]
    assert (answers, await it.there()) == ([True, False], [])
