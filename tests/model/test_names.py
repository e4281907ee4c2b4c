"""Names that other programs see must be upstream's to the letter."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.model import names
from sidecar.model.label_syntax import flaw_of_label
from sidecar.model.names import capacity_manager, shared_event, volume_name


@pytest.mark.parametrize(
    ("node", "label"),
    [
        pytest.param("node01", "external-provisioner-node01", id="F8"),
        pytest.param("node" + "a" * 38, "external-provisioner-node" + "a" * 38, id="F9-just-fits"),
        pytest.param("node" + "a" * 39, "external-p-53f40b57-node" + "a" * 39, id="F10"),
        pytest.param("node" + "a" * 48, "e-53f40b57-node" + "a" * 48, id="F11-one-letter-left"),
        pytest.param("node" + "a" * 49, "external-provisioner-a3607ff1", id="F12"),
        pytest.param("node" + "a" * 63, "external-provisioner-df38e37f", id="F13"),
    ],
)
def test_managed_by_label_fits_into_63_characters(node: str, label: str) -> None:
    assert capacity_manager(node) == label
    assert len(label) <= 63


def test_F13_managed_by_label_with_an_empty_base() -> None:
    assert capacity_manager("node" + "a" * 63, base="") == "fa65587e"


@pytest.mark.parametrize(
    ("prefix", "uid", "length", "name"),
    [
        pytest.param("pvc", "a-b-c", -1, "pvc-a-b-c", id="F15"),
        pytest.param("test", "testid", 5, "test-testi", id="F15-fixture"),
        pytest.param("pvc", "0123-4567-89", 32, "pvc-0123456789", id="F16-longer-than-the-uid"),
        pytest.param("pvc", "a-b-c", 2, "pvc-ab", id="F16-dashes-do-not-count"),
    ],
)
def test_volume_name(prefix: str, uid: str, length: int, name: str) -> None:
    assert volume_name(prefix, uid, length) == name


@pytest.mark.parametrize(
    ("claim", "event"),
    [
        pytest.param("data", "data.01234567.waits", id="short"),
        pytest.param("a" * 238, "a" * 238 + ".01234567.waits", id="just-fits"),
        pytest.param("a" * 239, "a" * 238 + ".01234567.waits", id="too-long"),
        pytest.param("a" * 236 + "-.bb", "a" * 236 + ".01234567.waits", id="cut-where-no-name-may-end"),
    ],
)
def test_the_name_of_an_event_that_all_nodes_would_write_is_one_that_the_api_server_takes(claim: str, event: str) -> None:
    assert shared_event(claim, "01234567-89ab", "waits") == event
    assert len(event) <= 253


SIDECAR = Path(names.__file__).parents[1]
OURS = {value: name for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
FOREIGN_DOMAIN = re.compile(r"\b(kubernetes|k8s|csi-node-sidecar)\.io\b|\bkarpenter\.sh\b|\bweave\.works\b")
# Words that mean something else there, with the file's folder or name.
MEANS_SOMETHING_ELSE = {
    ("slim_records.py", "policy"): "a field of a report",
    ("stored.py", "policy"): "a field of a report",
    ("config", "VolumeAttributesClass"): "a feature gate",
    ("config", "MutatingAdmissionPolicy"): "a feature gate",
    ("doors.py", "VolumeAttributesClass"): "a feature gate",
    ("settings.py", "VolumeAttributesClass"): "a feature gate",
    ("config", "NoSchedule"): "a policy for nodes",
    ("facts", "NoSchedule"): "a policy for nodes",
    ("config", "Provisioning"): "a heading of the help",
    ("request.py", "Secret"): "part of a field's name",
    ("request.py", "Namespace"): "part of a field's name",
    ("secrets.py", "Secret"): "part of a field's name",
    ("recorder.py", "Event"): "a log line",
    ("as_json.py", "policy"): "a field of the report",
    ("volumes.py", "policy"): "a field of what explain prints",
    ("kube", "/var/run/secrets/kubernetes.io/serviceaccount"): "a folder",
}


def literals(tree: ast.AST) -> Iterator[ast.Constant]:
    """Texts that do something: docstrings and the names of types do not."""
    dead: set[int] = set()
    for node in ast.walk(tree):
        unread = [node.value] if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else []
        unread += [value for name in ("annotation", "returns") if isinstance(value := getattr(node, name, None), ast.expr)]
        dead |= {id(inner) for outer in unread for inner in ast.walk(outer) if isinstance(inner, ast.Constant)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in dead:
            yield node


def strays(source: str, file: Path) -> list[str]:
    found = [(literal.lineno, str(literal.value)) for literal in literals(ast.parse(source))]
    return [
        f"{file}:{line}: {text!r} is names.{OURS.get(text, '?')}"
        for line, text in found
        if (text in OURS or FOREIGN_DOMAIN.search(text))
        and not any((where, text) in MEANS_SOMETHING_ELSE for where in (file.parent.name, file.name))
    ]


def test_a_string_that_other_programs_see_stands_in_names_alone() -> None:
    files = [file for file in sorted(SIDECAR.rglob("*.py")) if "simulation" not in file.relative_to(SIDECAR).parts]
    assert not [line for file in files if file != Path(names.__file__) for line in strays(file.read_text(), file)]


@pytest.mark.parametrize("line", ['x = {"kind": "Pod"}', 'x = f"{y}: see csi-node-sidecar.io/ack"', 'f(ref, "Warning")'])
def test_one_that_stands_elsewhere_is_found(line: str) -> None:
    (found,) = strays(f'"""Of a Pod."""\n\n{line}\n', Path("room/file.py"))
    assert found.startswith("room/file.py:3: ")


@pytest.mark.parametrize("line", ['def f() -> "Pod": ...', 'x: "Pod" = y', 'class A:\n    x: int\n    "Pod"'])
def test_docstrings_and_names_of_types_are_not_meant(line: str) -> None:
    assert strays(line, Path("room/file.py")) == []


UID = "0a1b2c3d-1111-2222-3333-444455556666"


@pytest.mark.parametrize("prefix", ["pvc", "a-b"])
@pytest.mark.parametrize("length", [-1, 1, 8, 12, 32])
def test_a_volume_s_name_is_known_whatever_the_flags_were(prefix: str, length: int) -> None:
    assert names.is_volume_name(names.volume_name(prefix, UID, length), UID)


@pytest.mark.parametrize("name", ["", "-", "pvc", "pvc-", "by-hand", UID, "-0a1b2c3d", f"pvc{UID}", "pvc-0a1b2c3e", "pvc-1111"])
def test_other_names_are_not(name: str) -> None:
    assert not names.is_volume_name(name, UID)


@pytest.mark.parametrize("node", ["n1", "n" * 63, "n" * 64, f"{'n' * 53}.{'n' * 80}", f"{'n' * 53}-.{'n' * 198}"])
def test_every_node_s_name_makes_the_value_of_a_label(node: str) -> None:
    value = names.node_value(node)
    assert not flaw_of_label(names.VOLUME_NODE, value)
    assert value == node or names.node_value(f"{node}2") != value


LONG = "a" * 29 + "-in-the-middle-" + "b" * 28


@pytest.mark.parametrize(
    ("node", "value"),
    [
        pytest.param("n1", "node.n1", id="short"),
        pytest.param("ip-10-0-0-1.eu-1.example.com", "node.ip-10-0-0-1.eu-1.example.com", id="with-dots"),
        pytest.param("n" * 58, "node." + "n" * 58, id="just-fits"),
        pytest.param(LONG, "node." + "a" * 29 + "_" + "b" * 28, id="both-ends-of-a-longer-one"),
        pytest.param("a" * 253, "node." + "a" * 29 + "_" + "a" * 28, id="the-longest"),
        pytest.param("a" * 254, "", id="too-long"),
        *(pytest.param(name, "", id=f"no-name-{name!r}") for name in ("", "A", "a b", "a_b", "a\n", "-a", "a-", ".a", "é", "node/a")),
    ],
)
def test_claims_of_a_node_have_a_label_that_a_watch_can_select(node: str, value: str) -> None:
    assert names.claims_of_node(node) == value
    assert not flaw_of_label(names.CLAIM_LABEL, value)


def test_a_name_that_was_cut_is_no_other_node_s_whole_name() -> None:
    """Only another one that was cut can have the same value."""
    assert not re.fullmatch(r"[-a-z0-9.]*", names.claims_of_node("a" * 59))


@pytest.mark.parametrize(
    ("claim", "value"),
    [
        pytest.param({}, "waiting", id="new"),
        pytest.param({"provisioner": "d"}, "open.66", id="immediate"),
        pytest.param({"provisioner": "d", "uid": ""}, "open.00", id="immediate-while-it-is-made"),
        pytest.param({"provisioner": "d", "uid": "0A1B-FF"}, "open.00", id="a-uid-of-another-form"),
        pytest.param({"provisioner": "d", "volume_name": "v"}, "waiting", id="bound-by-hand-or-for-nobody"),
        pytest.param({"volume_name": "v"}, "waiting", id="bound-by-hand"),
        pytest.param({"selected_node": "n1"}, "node.n1", id="late"),
        pytest.param({"selected_node": "n1", "provisioner": "d"}, "node.n1", id="late-and-asked-for"),
        pytest.param({"selected_node": "n1", "provisioner": "d", "volume_name": "v"}, "node.n1", id="bound"),
        pytest.param({"selected_node": "No Node", "provisioner": "d"}, "waiting", id="selected-for-nobody"),
    ],
)
def test_the_label_of_a_claim(claim: dict[str, str], value: str) -> None:
    told = {"selected_node": "", "provisioner": "", "volume_name": "", "uid": UID} | claim
    assert names.claim_label(**told) == value
