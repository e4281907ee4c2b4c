"""What GitHub reads of this repository: forms that it offers, a workflow that runs what every machine runs, and pages that say how."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.harness.issue_forms import faults_of

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".github"
FORMS = sorted(path for path in (FOLDER / "ISSUE_TEMPLATE").iterdir() if path.name != "config.yml")
WORKFLOWS = sorted((FOLDER / "workflows").iterdir())


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


# --- issue forms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_is_one_that_github_offers(path: Path) -> None:
    assert path.suffix == ".yml" and faults_of(read(path)) == []


def test_every_form_has_a_name_of_its_own_and_there_is_no_way_around_them() -> None:
    names = [read(path)["name"] for path in FORMS]
    assert len(set(names)) == len(names) == 3
    assert read(FOLDER / "ISSUE_TEMPLATE" / "config.yml") == {"blank_issues_enabled": False}


@pytest.mark.parametrize("command", ["version -o json", "explain"])
def test_who_reports_a_bug_is_asked_what_the_program_says_of_itself(command: str) -> None:
    asked = {element["id"]: element for element in read(FOLDER / "ISSUE_TEMPLATE" / "bug.yml")["body"] if "id" in element}
    field = asked[command.split()[0]]
    assert field["attributes"]["label"] == f"csi-node-sidecar {command}" and field["validations"]["required"]


SOUND: dict[str, Any] = {
    "name": "Bug",
    "description": "d",
    "body": [{"type": "input", "id": "a", "attributes": {"label": "A"}, "validations": {"required": True}}],
}


def element(**changed: Any) -> dict[str, Any]:
    return {**SOUND, "body": [*SOUND["body"], {"type": "input", "id": "b", "attributes": {"label": "B"}, **changed}]}


@pytest.mark.parametrize(
    ("form", "fault"),
    [
        ("text", "is no mapping"),
        ({**SOUND, "name": ""}, "name: '' is no str"),
        ({key: value for key, value in SOUND.items() if key != "description"}, "description: is missing"),
        ({**SOUND, "description": True}, "description: True is no str"),
        ({**SOUND, "about": "old form"}, "about: no such key"),
        ({**SOUND, "body": []}, "body: is no list"),
        ({**SOUND, "body": [{"type": "markdown", "attributes": {"value": "v"}}]}, "nothing is asked"),
        (element(type="text"), "'text' is none of"),
        (element(id="a"), "id 'a' is there 2 times"),
        (element(id="a b"), "other characters"),
        (element(attributes={"label": "A"}), "label 'A' is there 2 times"),
        (element(attributes={}), "label: is missing"),
        (element(attributes={"label": "B", "render": "json"}), "render: no such key"),
        (element(validations={"required": "yes"}), "required: 'yes' is no bool"),
        (element(type="markdown", attributes={"value": "v"}), "id: no such key"),
        (element(type="dropdown", attributes={"label": "B"}), "options: is missing"),
        (element(type="dropdown", attributes={"label": "B", "options": ["x", "x"]}), "option 'x' is there 2 times"),
        (element(type="dropdown", attributes={"label": "B", "options": [True]}), "options: True is no text"),
        (element(type="dropdown", attributes={"label": "B", "options": ["None"]}), "GitHub's own word"),
        (element(type="checkboxes", attributes={"label": "B", "options": ["x"]}), "options: 'x' is no mapping"),
        (element(type="checkboxes", attributes={"label": "B", "options": [{"required": True}]}), "label: is missing"),
    ],
)
def test_a_form_that_github_would_not_offer_is_seen(form: Any, fault: str) -> None:
    assert fault in "\n".join(faults_of(form))


def test_a_sound_form_has_no_fault() -> None:
    assert faults_of(SOUND) == [] == faults_of(element())


# --- the workflow -----------------------------------------------------------------------------------------------------


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


def given_to(action: str) -> dict[str, str]:
    (given,) = [step["with"] for step in steps(FOLDER / "workflows" / "ci.yml") if step.get("uses", "").startswith(f"{action}@")]
    return dict(given)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_read_alone_takes_actions_of_one_major_version_and_ends(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 90 for job in workflow["jobs"].values())
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"]) for step in steps(path) if "uses" in step)
    assert all(("uses" in step) != ("run" in step) for step in steps(path))


def test_changes_run_what_continuous_integration_runs_anywhere() -> None:
    path = FOLDER / "workflows" / "ci.yml"
    workflow = read(path)
    # A bare `on` is a truth value to YAML 1.1.
    assert set(workflow[True]) == {"push", "pull_request"}
    assert [step["run"] for step in steps(path) if step.get("run", "").endswith(" .ci/run")]
    assert (ROOT / ".ci" / "run").is_file()
    (job,) = workflow["jobs"].values()
    assert job["timeout-minutes"] == 90


def test_the_cache_is_the_folder_that_the_commands_use_and_is_kept_by_what_goes_into_it() -> None:
    cache = given_to("actions/cache")
    assert cache["path"] == "~/.cache/csi-node-sidecar"
    patterns = re.findall(r"'([^']+)'", cache["key"])
    assert "hack/constraints*.txt" in patterns and all(any(ROOT.glob(pattern)) for pattern in patterns)
    assert cache["key"].startswith(cache["restore-keys"])


def test_what_a_command_needs_of_python_is_what_the_workflow_takes() -> None:
    (python,) = [
        step["with"] for step in steps(FOLDER / "workflows" / "ci.yml") if step.get("uses", "").startswith("actions/setup-python@")
    ]
    assert f'requires-python = ">={python["python-version"]}"' in (ROOT / "pyproject.toml").read_text()


# --- the pages --------------------------------------------------------------------------------------------------------


def test_no_address_is_made_up_to_report_to() -> None:
    text = (FOLDER / "SECURITY.md").read_text()
    assert "private vulnerability reporting" in text
    assert not re.search(r"[\w.]+@[\w.]+|mailto:", text)
    assert set(re.findall(r"https://([\w.-]+)", text)) == {"docs.github.com"}


def test_the_threat_model_is_ten_lines() -> None:
    model = (FOLDER / "SECURITY.md").read_text().partition("\n## Threat model\n")[2]
    assert re.findall(r"^(\d+)\. ", model, re.MULTILINE) == [str(number) for number in range(1, 11)]


def test_contributors_are_told_commands_that_there_are() -> None:
    commands = re.findall(r"(?<![\w~/.])((?:hack|\.ci)/[a-z-]+)(?![\w/-])", (FOLDER / "CONTRIBUTING.md").read_text())
    assert len(set(commands)) > 5 and all((ROOT / command).is_file() for command in commands)
