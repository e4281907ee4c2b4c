"""Each thing that may be wrong is one line with its remedy; what could not be asked is said, and nothing else is made of it."""

from dataclasses import fields, replace

import pytest

from sidecar.commands.check.findings import ClaimPolicy, DriverObject, Election, Findings, NotAsked, Server
from sidecar.commands.check.judging import CHECKS, judge
from sidecar.commands.check.lines import Level, Line, as_json, as_text, exit_code
from sidecar.commands.check.object_rules import with_secrets
from sidecar.csi.api import PUBLISH_UNPUBLISH_VOLUME
from sidecar.kube.api import ATTACHMENTS, BUDGETS, CAPACITIES, CLAIMS, CSI_NODES, LEASES, NODES, SECRETS, VOLUMES
from sidecar.model.objects import Class
from sidecar.rights.rights import PATCH_VOLUMES, UPDATE_VOLUMES, Right, Rights
from sidecar.rights.table import TABLE
from tests.commands.check.found import CLASS, DRIVER, INFO, OURS, WELL, outside, with_flags, wrong


def test_nothing_is_wrong() -> None:
    assert wrong(WELL) == [] == wrong(outside())
    assert exit_code(judge(WELL)) == 0


DOUBTFUL, BAD = Level.WARNING, Level.FAILED
LABELS, WHO = "claim labels", "provisioners"
POLICY = with_flags("--watch-scope=labelled")


def policy(served: tuple[str, ...], there: bool, bound: bool) -> Findings:
    return replace(POLICY, policy=ClaimPolicy(served, there, bound))


NEARLY = (replace(CLASS, provisioner="local.exmple"),)
TWICE = (OURS, replace(OURS, container="b"))
PEER = replace(OURS, container="peer", image="csi-provisioner:v6", ours=False)
UNNAMED = tuple(replace(OURS, name=name, socket=name, mentions=frozenset()) for name in ("x", "y"))
CENTRAL = replace(PEER, kind="Deployment", name="controller", words=("--leader-election",), nodes=())
ATTACHING = replace(INFO, controller=INFO.controller | {PUBLISH_UNPUBLISH_VOLUME})
IMMEDIATE = replace(CLASS, binding_mode="Immediate")
REPORT_ONLY = ("--node-deployment", "--provisioning=false", "--drain-report")
REPORTING = with_flags("--provisioning=false", "--drain-report", "--enable-capacity=false")
WRONG: dict[str, tuple[Findings, str, Level, str]] = {
    "no API of the policy": (
        policy((), False, False),
        LABELS,
        DOUBTFUL,
        "no MutatingAdmissionPolicy",
    ),
    "an old API of it": (
        policy(("v1beta1",), False, False),
        LABELS,
        DOUBTFUL,
        "scoped-watches-v1beta1",
    ),
    "no binding of it": (policy(("v1",), True, False), LABELS, DOUBTFUL, "no binding"),
    "an old server": (replace(WELL, server=Server("v1.30.4-eks", 0.0, 0.5)), "API server", DOUBTFUL, "older than 1.33"),
    "no server": (replace(WELL, server=NotAsked("refused")), "API server", BAD, "does not answer: refused"),
    "a clock that is a little off": (replace(WELL, server=Server("v1.36.3", -30.0, 0.5)), "clock", DOUBTFUL, "30 s behind"),
    "a clock that is far off": (replace(WELL, server=Server("v1.36.3", 600.0, 0.5)), "clock", BAD, "600 s ahead of"),
    "that clock, but here": (outside(server=Server("v1.36.3", 600.0, 0.5)), "clock", DOUBTFUL, "the clock of this machine"),
    "no driver is meant": (outside(driver="", provisioners=()), "driver", BAD, f"one of {DRIVER}"),
    "a volume is attached that nobody attaches": (
        replace(WELL, drivers={DRIVER: DriverObject(attaches=True, storage_capacity=True)}),
        "CSIDriver",
        BAD,
        "attachRequired is true",
    ),
    "no class": (replace(WELL, classes=()), "classes", DOUBTFUL, f"no StorageClass has provisioner {DRIVER}"),
    "a class that is nearly ours": (
        replace(WELL, classes=NEARLY),
        "classes",
        DOUBTFUL,
        "a slip",
    ),
    "a parameter that is misspelt": (
        replace(WELL, classes=(replace(CLASS, parameters={"csi.storage.k8s.io/fstyp": "xfs"}),)),
        "classes",
        BAD,
        "no claim of it can be provisioned: StorageClass 'late' has unknown parameters with a reserved prefix: csi.storage.k8s.io/fstyp",
    ),
    "nothing is published": (replace(WELL, published=0), "capacity", DOUBTFUL, "no CSIStorageCapacity"),
    "upstream beside ours": (replace(WELL, provisioners=(OURS, PEER)), WHO, BAD, "take container peer out of"),
    "ours twice in a pod": (
        replace(WELL, provisioners=TWICE),
        WHO,
        BAD,
        "another container of ours",
    ),
    "a central one": (replace(WELL, provisioners=(OURS, CENTRAL)), WHO, BAD, "scale that to 0"),
    "two pods": (replace(WELL, provisioners=(OURS, replace(OURS, name="b"))), WHO, BAD, "two pods provision"),
    "two that report": (
        replace(REPORTING, provisioners=(OURS, replace(OURS, name="b", words=REPORT_ONLY))),
        WHO,
        BAD,
        "two of ours write the verdicts of local.example on node",
    ),
    "a Lease": (replace(WELL, elections=(Election("ns/x", "pod-1", 3.0),)), WHO, BAD, "pod-1 holds Lease ns/x"),
    "upstream on other nodes": (
        replace(WELL, provisioners=(OURS, replace(PEER, name="old", nodes=("n2",)))),
        WHO,
        DOUBTFUL,
        "while images are swapped",
    ),
    "upstream alone": (outside(provisioners=(PEER,)), WHO, BAD, "external-provisioner provisions for local.example, and none of ours"),
    "two of ours that name no driver": (outside(provisioners=UNNAMED), WHO, BAD, "say its namespace with -n"),
    "a driver that is nearly there": (replace(WELL, driver="local.exampl"), "CSIDriver", BAD, "is local.example meant?"),
    "an account without any right": (
        replace(WELL, rights=Rights(refused=frozenset(row.right for row in TABLE))),
        "rights",
        BAD,
        "has none of the",
    ),
    "nobody": (outside(provisioners=()), WHO, BAD, "--image"),
}


@pytest.mark.parametrize(("found", "which", "level", "text"), WRONG.values(), ids=WRONG.keys())
def test_it_is_named_with_its_remedy(found: Findings, which: str, level: Level, text: str) -> None:
    (line,) = [line for line in wrong(found) if line.check == which]
    assert (line.level, line.asked) == (level, True)
    assert text in line.message and line.remedy


@pytest.mark.parametrize(
    "found",
    [
        replace(WELL, elections=(Election("ns/x", "pod-1", 86400.0),)),
        replace(WELL, provisioners=(OURS, replace(CENTRAL, mentions=frozenset({"other.example"}), socket="/other"))),
        replace(WELL, provisioners=(OURS, replace(OURS, name="b", mentions=frozenset({"other.example"}), socket="/other"))),
        replace(WELL, policy=ClaimPolicy((), False, False)),
        replace(WELL, socket=ATTACHING, drivers={DRIVER: DriverObject(attaches=True, storage_capacity=True)}),
        replace(with_flags(without="--enable-capacity"), drivers={DRIVER: DriverObject(False, False)}, published=0),
    ],
    ids=[
        "an old Lease",
        "another driver's central one",
        "another driver's sidecar",
        "no policy that nobody needs",
        "it attaches",
        "no capacity",
    ],
)
def test_what_is_no_fault_is_none(found: Findings) -> None:
    assert [line for line in wrong(found) if line.check != "flags"] == []


ASKED = [field.name for field in fields(Findings) if field.name not in ("on_node", "driver", "node", "program", "asker")]


def test_what_could_not_be_asked_is_said_once_and_nothing_is_made_of_it() -> None:
    for name in ASKED:
        lines = wrong(replace(POLICY, **{name: NotAsked("the role does not allow it")}))
        assert all("the role does not allow it" in line.message for line in lines)
        if name == "server":
            assert [line.level for line in lines] == [Level.FAILED]
        else:
            assert [(line.asked, line.level) for line in lines] == ([(False, Level.WARNING)] if name != "socket" else []), name


# --- rights -----------------------------------------------------------------------------------------------------------


def lines_without(*rights: Right, found: Findings = WELL) -> list[Line]:
    refused = frozenset(rights)
    everything = frozenset(row.right for row in TABLE)
    return wrong(replace(found, rights=Rights(everything - refused, refused)))


def test_a_right_is_missed_only_where_it_is_used_and_then_with_what_is_off() -> None:
    everywhere = replace(
        with_flags(
            "--drain-report", "--evacuation-evict", "--allow-reprovision", "--node-delete-policy=Cleanup", "--maintenance", "--guest-drain",
            "--failover=Act",
            "--drain-gate-image=pause", "--node-drain-policy=Evacuate",
            "--node-deployment-placement=ranked",
            "--feature-gates=CrossNamespaceVolumeDataSource=true,VolumeAttributesClass=true", "--capacity-ownerref-level=2",
        ),
        socket=ATTACHING,
        classes=(replace(CLASS, parameters={"csi.storage.k8s.io/provisioner-secret-name": "s"}),),
    )  # fmt: skip
    for row in TABLE:
        if row.off:
            more = (UPDATE_VOLUMES,) if row.right == PATCH_VOLUMES else ()
            (line,) = [line for line in lines_without(row.right, *more, found=everywhere) if line.check == "rights"]
            assert row.off in line.text and row.right.verb in line.remedy, row.right


def test_verbs_that_switch_off_the_same_are_one_line() -> None:
    (line,) = lines_without(Right("list", VOLUMES), Right("watch", VOLUMES))
    assert "may not list, watch persistentvolumes; off is: all" in line.message


@pytest.mark.parametrize(
    ("right", "level"),
    [
        (Right("create", VOLUMES), Level.FAILED),
        (Right("list", CAPACITIES, own_namespace=True), Level.FAILED),
        (Right("update", CLAIMS), Level.WARNING),
        (Right("create", LEASES, own_namespace=True), None),
        (Right("get", SECRETS), None),
        (Right("list", ATTACHMENTS), None),
        (Right("list", CSI_NODES), Level.WARNING),
        (Right("get", CSI_NODES), Level.WARNING),
        (Right("get", NODES), Level.WARNING),
        (Right("list", NODES), Level.WARNING),
        (Right("watch", NODES), None),
        (Right("get", BUDGETS), None),
        (PATCH_VOLUMES, None),
    ],
    ids=str,
)
def test_what_flags_and_classes_need_counts_more(right: Right, level: Level | None) -> None:
    assert [line.level for line in lines_without(right)] == ([] if level is None else [level])


def test_a_right_to_write_claims_is_needed_by_classes_that_bind_at_once() -> None:
    found = replace(WELL, classes=(IMMEDIATE,))
    assert Level.FAILED in [line.level for line in lines_without(Right("update", CLAIMS), found=found)]


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_no_parameter_of_a_class_is_shown() -> None:
    secretive = Class.of({"metadata": {"name": "x"}, "provisioner": DRIVER, "parameters": {"password": "hunter2", "pool": "p"}})
    assert not with_secrets(replace(WELL, classes=(secretive,)))
    found = replace(WELL, classes=(secretive, IMMEDIATE))
    told = tuple(judge(found))
    assert "hunter2" not in as_text(told, encoding="utf-8") + str(as_json(told, found))


def test_a_terminal_that_knows_ascii_alone_is_given_that() -> None:
    lines = (Line("driver", Level.OK, "größer"), Line("flags", Level.WARNING, "a"), Line("x", Level.FAILED, "b", "c"))
    assert as_text(lines, encoding="UTF-8").splitlines()[:3] == ["✓ driver  größer", "! flags   a", "✗ x       b; c"]
    shown = as_text(lines, encoding="ascii")
    assert shown.isascii() and [line[:2] for line in shown.splitlines()[:3]] == ["ok", " !", " X"]


def test_what_objects_say_cannot_break_a_line() -> None:
    found = replace(WELL, classes=(replace(IMMEDIATE, name="a\n✓ all is well\x1b[2J"),))
    text = as_text(tuple(judge(found)), encoding="utf-8")
    assert "\x1b" not in text and not any(line.startswith("✓ all") for line in text.splitlines())


def test_where_nothing_at_all_could_be_asked_each_check_bears_it() -> None:
    nothing = replace(WELL, **{name: NotAsked("no answer") for name in ASKED})
    for one in CHECKS:
        for line in one(nothing):
            assert line.level is not Level.OK or line.check == "driver"
