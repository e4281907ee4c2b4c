"""When the gate stands and when it opens, and that it holds one node's guard and nothing else."""

import copy
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.gate.guard import GateObjects, Post
from sidecar.drain.gate.rules import Build, Clear, GateView, Open, decide, needs_watching, selector, wanted, why_loose
from sidecar.drain.rest import Rest
from sidecar.drain.vocabulary import Intent, Status
from sidecar.model import names
from sidecar.model.nodes import Budget, Node, Pod
from sidecar.model.objects import Json
from tests.harness.drain.samples import DRIVER, node, taint

TRUE, FALSE, UNKNOWN = Status.TRUE, Status.FALSE, Status.UNKNOWN


def post(of: Node | None = None, driver: str = DRIVER) -> Post:
    return Post(of or node(), driver, "storage", "registry.example.com/pause:3")


def view(*, at: Post | None = None, **changes: Any) -> GateView:
    """A node that is to retire, with blockers and no gate yet."""
    base = GateView(at or post(), True, True, Intent.RETIRE, FALSE, FALSE, False, None, None)
    return replace(base, **changes)


def stored(**changes: Any) -> tuple[Json, Json]:
    """The gate as it should be, as the server has it."""
    gate = wanted(view(**changes))
    assert gate is not None
    given_by_server = {"uid": "given", "resourceVersion": "1"}
    budget, deployment = (obj | {"metadata": obj["metadata"] | given_by_server} for obj in copy.deepcopy((gate.budget, gate.deployment)))
    return budget, deployment


def standing(**changes: Any) -> GateView:
    budget, deployment = stored()
    return view(**{"budget": budget, "deployment": deployment} | changes)


def test_a_gate_is_built_budget_first_and_then_stays_as_it_is() -> None:
    built = decide(view())
    assert isinstance(built, Build) and [obj["kind"] for obj in built.objects] == ["PodDisruptionBudget", "Deployment"]
    assert isinstance(decide(standing()), Rest)


def test_a_missing_half_of_the_gate_is_built_again() -> None:
    for kind, lacking in (("PodDisruptionBudget", standing(budget=None)), ("Deployment", standing(deployment=None))):
        decision = decide(lacking)
        assert isinstance(decision, Build) and [obj["kind"] for obj in decision.objects] == [kind]


def test_the_gate_opens_budget_first() -> None:
    for changes, why in [
        ({"retire": TRUE}, "nothing blocks"),
        ({"overridden": True}, "overridden"),
        ({"enabled": False}, "switched off"),
        ({"intent": Intent.REBOOT, "drain": TRUE}, "nothing blocks"),
        ({"overridden": True, "retire": UNKNOWN}, "overridden"),
        ({"draining": False, "holds_volumes": False, "retire": TRUE}, "nothing blocks"),
    ]:
        decision = decide(standing(**changes))
        assert isinstance(decision, Open) and why in decision.why
        assert [obj["kind"] for obj in decision.objects] == ["PodDisruptionBudget", "Deployment"]
        assert isinstance(decide(view(**changes)), Rest) and wanted(view(**changes)) is None


def test_a_reboot_waits_for_its_own_verdict_retiring_for_its_own_and_what_nobody_announces_for_both() -> None:
    for assumed in Intent:
        for intent, drain, retire, holds in [
            (Intent.REBOOT, FALSE, TRUE, True),
            (Intent.REBOOT, TRUE, FALSE, False),
            (Intent.RETIRE, TRUE, FALSE, True),
            (None, TRUE, FALSE, True),
            (None, FALSE, TRUE, True),
            (None, TRUE, TRUE, False),
        ]:
            if intent is None and assumed is Intent.REBOOT:
                holds = drain is FALSE
            assert isinstance(decide(view(intent=intent, drain=drain, retire=retire, assumed=assumed)), Build) is holds


def test_while_something_is_not_known_the_gate_is_neither_opened_nor_built() -> None:
    for changes in [
        {"retire": UNKNOWN},
        {"retire": UNKNOWN, "holds_volumes": True},
        {"retire": UNKNOWN, "draining": False},
        {"retire": UNKNOWN, "draining": False, "holds_volumes": False},
        {"retire": TRUE, "draining": False},
    ]:
        budget, _ = stored()
        for have in (view(), standing(), view(budget=budget)):
            assert isinstance(decide(replace(have, **changes)), Rest)


def test_where_volumes_are_the_gate_stands_in_peace_whatever_the_verdict() -> None:
    for retire in Status:
        peace: dict[str, Any] = {"draining": False, "holds_volumes": True, "intent": None, "retire": retire}
        assert isinstance(decide(view(**peace)), Build)
        assert isinstance(decide(standing(**peace)), Rest)


def test_a_gate_that_is_open_only_while_somebody_looks_keeps_its_lease() -> None:
    for changes, stands, before, watched in [
        ({"holds_volumes": True}, False, False, True),
        ({"holds_volumes": False}, False, True, False),
        ({"holds_volumes": False}, True, True, True),
        ({"holds_volumes": None}, False, True, True),
        ({"holds_volumes": None}, False, False, False),
        ({"holds_volumes": True, "enabled": False}, False, True, False),
    ]:
        assert needs_watching(view(**changes), stands=stands, before=before) is watched


def of_an_earlier_release() -> Json:
    """Its guard leaves a node that does not answer, after 300 s."""
    _, deployment = stored()
    spec = deployment["spec"]["template"]["spec"]
    spec["tolerations"] = [item for item in spec["tolerations"] if item["key"] not in names.SILENCE_TAINTS]
    return deployment


def test_a_guard_stays_on_a_node_that_does_not_answer() -> None:
    silent = tuple(taint(key, effect="NoExecute") for key in names.SILENCE_TAINTS)
    assert guard(gate(post())).tolerates(silent)
    tolerations = gate(post()).deployment["spec"]["template"]["spec"]["tolerations"]
    assert not [item for item in tolerations if "tolerationSeconds" in item]


def test_a_guard_of_an_earlier_release_is_replaced_in_peace_and_never_in_a_drain() -> None:
    old = of_an_earlier_release()
    in_peace = decide(standing(deployment=old, draining=False, holds_volumes=True))
    assert isinstance(in_peace, Clear) and in_peace.objects == (old,)
    assert isinstance(decide(standing(deployment=old, draining=True)), Rest)
    for unwell in ("False", "Unknown"):
        at = post(node(ready=unwell))
        assert isinstance(decide(standing(at=at, deployment=old, draining=False, holds_volumes=True)), Rest)


def test_a_gate_that_is_still_being_deleted_is_waited_for() -> None:
    budget, deployment = stored()
    leaving = deployment | {"metadata": deployment["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert isinstance(decide(view(deployment=leaving)), Rest)
    decision = decide(view(budget=budget, deployment=leaving, retire=TRUE))
    assert isinstance(decision, Open) and decision.objects == (budget,)


def test_a_gate_that_somebody_has_changed_is_made_anew() -> None:
    budget, deployment = stored()
    loose = budget | {"spec": budget["spec"] | {"minAvailable": 0}}
    wide = budget | {"spec": budget["spec"] | {"selector": {}}}
    asleep = deployment | {"spec": deployment["spec"] | {"replicas": 0}}
    assert decide(view(budget=loose, deployment=deployment)) == Clear((loose,), "somebody has changed the gate so that it holds nobody")
    assert isinstance(decide(view(budget=wide, deployment=deployment)), Clear)
    assert isinstance(decide(view(budget=budget, deployment=asleep)), Clear)


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


def test_a_gate_whose_guard_would_run_elsewhere_or_nowhere_is_made_anew() -> None:
    for changes in [
        {"affinity": None},
        {"affinity": {}},
        {"affinity": terms(named("n2"))},
        {"affinity": terms(named("n1", "n2"))},
        {"affinity": terms(named("n1"), ANYWHERE)},
        {"affinity": terms(ANYWHERE)},
        {"nodeName": "n2"},
        {"nodeSelector": {"kubernetes.io/hostname": "n2"}},
        {"tolerations": None},
        {"tolerations": [{"key": names.CORDON_TAINT, "operator": "Exists"}]},
    ]:
        moved = placed(**changes)
        assert decide(standing(deployment=moved)) == Clear((moved,), "somebody has changed the gate so that it holds nobody")


def test_what_others_add_to_the_gate_is_no_reason_to_make_it_anew() -> None:
    for changes in [
        {"affinity": terms(named("n1", **ANYWHERE)) | {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}},
        {"nodeName": "n1"},
        {"nodeName": ""},
        {"nodeSelector": {}},
        {"nodeSelector": {"zone": "a"}},
        {"schedulerName": "default-scheduler", "priorityClassName": "system", "dnsPolicy": "ClusterFirst"},
    ]:
        at = post(node(labels={"zone": "a", "rack": "7"}))
        assert isinstance(decide(standing(at=at, deployment=placed(**changes))), Rest)


def with_ready(deployment: Json, guards: int) -> Json:
    return deployment | {"status": {"replicas": 1, "readyReplicas": guards}}


def test_while_a_guard_is_ready_taints_are_no_reason_to_make_the_gate_anew() -> None:
    _, deployment = stored()
    assert isinstance(decide(standing(at=post(node(taints=LASTING)), deployment=with_ready(deployment, 1))), Rest)
    _, tolerant = stored(at=post(node(taints=LASTING)))
    assert isinstance(decide(standing(deployment=tolerant)), Rest)


def test_a_gate_whose_guard_cannot_come_back_is_made_anew_and_then_let_be() -> None:
    for lasting in [
        0,  # NoSchedule
        1,  # NoExecute
    ]:
        budget, deployment = stored()
        at = post(node(taints=(*EMPTIED, LASTING[lasting])))
        for have in (deployment, with_ready(deployment, 0)):
            decision = decide(standing(at=at, deployment=have))
            assert isinstance(decision, Clear) and decision.objects == (have,)
            assert isinstance(decide(standing(at=at, deployment=have, retire=UNKNOWN)), Rest)
        anew = decide(view(at=at, budget=budget))
        assert isinstance(anew, Build) and [obj["kind"] for obj in anew.objects] == ["Deployment"]
        assert isinstance(decide(standing(at=at, deployment=anew.objects[0])), Rest)


def test_taints_that_do_not_last_are_no_reason_to_make_the_gate_anew() -> None:
    unwell = (taint("node.kubernetes.io/not-ready", effect="NoExecute"), taint("spot", effect="PreferNoSchedule"))
    for item in (*EMPTIED, *ENDS, *unwell):
        assert isinstance(decide(standing(at=post(node(taints=(item,))))), Rest), item


def gate(at: Post) -> GateObjects:
    found = wanted(view(at=at))
    assert found is not None
    return found


def guard(of: GateObjects) -> Pod:
    """The pod that the Deployment's controllers would make."""
    template = of.deployment["spec"]["template"]
    meta = template["metadata"] | {"name": "guard", "namespace": of.deployment["metadata"]["namespace"]}
    return Pod.of({"metadata": meta, "spec": template["spec"]})


ELSEWHERE = [
    post(node("n2")),
    post(node(uid="uid-of-another-machine")),
    post(driver="other.example.com"),
]


def test_drain_E3_the_budget_holds_its_own_guard_and_no_other() -> None:
    for other in ELSEWHERE:
        mine = gate(post())
        budget = Budget.of(mine.budget)
        assert budget.covers(guard(mine)) and not budget.covers(guard(gate(other)))
        assert mine.budget["metadata"]["name"] != gate(other).budget["metadata"]["name"]


def loose(pod: Pod, *budgets: Budget) -> str:
    mine = gate(post()).budget
    return why_loose(mine["metadata"]["name"], DRIVER, "storage", node_uid="uid-n1", pods=[pod], budgets=[Budget.of(mine), *budgets])


def test_a_gate_holds_as_long_as_its_guard_is_ready() -> None:
    ready = replace(guard(gate(post())), ready=True)
    assert loose(ready) == ""
    labels = {names.GUARDED_NODE: "uid-n1", names.GUARDED_FOR: DRIVER}
    unrelated = [
        *(replace(ready, labels=labels | {key: "another"}) for key in labels),
        *(replace(ready, labels={key: labels[key]}) for key in labels),
        replace(ready, namespace="elsewhere"),
        replace(ready, ready=False),
        replace(ready, deleting_since="2026-01-01T00:00:00Z"),
    ]
    for pod in unrelated:
        assert "not ready" in loose(pod), pod


def test_a_gate_whose_guard_is_in_two_budgets_holds_nobody() -> None:
    ready = replace(guard(gate(post())), ready=True)
    everything = {"metadata": {"name": "all", "namespace": "storage"}, "spec": {"maxUnavailable": 1, "selector": {}}}
    labelled = everything["spec"] | {"selector": {"matchExpressions": [{"key": names.GUARDED_FOR, "operator": "Exists"}]}}
    for spec in (everything["spec"], labelled):
        assert "storage/all" in loose(ready, Budget.of(everything | {"spec": spec}))
    others = everything["spec"] | {"selector": {"matchLabels": {"app": "db"}}}
    for spec in (others, {"maxUnavailable": 1}):
        assert loose(ready, Budget.of(everything | {"spec": spec})) == ""
    elsewhere = everything["metadata"] | {"namespace": "apps"}
    assert loose(ready, Budget.of(everything | {"metadata": elsewhere})) == ""


def test_both_objects_bear_the_owner_reference_and_the_labels_they_are_found_by() -> None:
    key, _, value = selector(DRIVER).partition("=")
    for obj in (gate(post()).budget, gate(post()).deployment):
        assert obj["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-n1"}]
        assert obj["metadata"]["labels"][key] == value and obj["metadata"]["labels"][names.GUARDED_NODE] == "uid-n1"


def test_the_guard_is_small_can_only_run_there_and_asks_for_nothing() -> None:
    spec = gate(post()).deployment["spec"]["template"]["spec"]
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    assert "volumes" not in spec and "priorityClassName" not in spec and "nodeName" not in spec
    assert spec["containers"][0]["image"] == "registry.example.com/pause:3"


EMPTIED = (taint(names.CORDON_TAINT), taint(names.EVACUATE_TAINT, "retire"), taint(names.EVACUATE_TAINT, "retire", "NoExecute"))
LASTING = (taint("dedicated", "db"), taint("gpu", effect="NoExecute"))
ENDS = (*(taint(key) for key in names.RETIRING_TAINTS), taint("node.kubernetes.io/out-of-service", effect="NoExecute"))


def test_the_guard_gets_onto_the_node_it_guards() -> None:
    for tainted in [(), EMPTIED, LASTING, EMPTIED + LASTING]:
        pod = guard(gate(post(node(taints=tainted))))
        assert pod.tolerates(tainted) and pod.tolerates(EMPTIED)


def test_the_guard_does_not_tolerate_what_drainers_pass_over() -> None:
    for end in ENDS:
        assert not guard(gate(post(node(taints=(end, *LASTING))))).tolerates((end,))


statuses, intents = st.sampled_from(Status), st.sampled_from([None, *Intent])


@given(intents, statuses, statuses, st.booleans(), st.booleans(), st.booleans(), st.sampled_from([None, True, False]))
def test_ignorance_never_opens_a_gate_and_builds_none_but_for_volumes_in_peace(
    intent: Intent | None, drain: Status, retire: Status, has_budget: bool, has_guard: bool, draining: bool, holds: bool | None
) -> None:
    budget, deployment = stored()
    have: dict[str, Any] = {"budget": budget if has_budget else None, "deployment": deployment if has_guard else None}
    seen = view(intent=intent, drain=drain, retire=retire, draining=draining, holds_volumes=holds, **have)
    decision = decide(seen)
    if isinstance(decision, Open):
        assert seen.verdict is TRUE and (draining or holds is False)
    if isinstance(decision, Build):
        assert seen.verdict is FALSE or (holds and not draining)


def test_each_object_of_a_gate_says_what_it_is_for_and_how_to_get_past_it() -> None:
    """A drainer's message names the budget alone."""
    made = gate(post())
    for meta in (made.budget["metadata"], made.deployment["metadata"], made.deployment["spec"]["template"]["metadata"]):
        why = meta["annotations"][f"{names.GROUP}/why"]
        assert f"explain node {node().name}" in why and names.FORCE_DRAIN in why and f"uninstall --driver {DRIVER}" in why
