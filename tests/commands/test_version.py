"""What `version` says of the program, and where that comes from."""

import json
import platform

import pytest

import sidecar
from sidecar.commands import version
from sidecar.config.errors import UsageError
from sidecar.csi.version import CSI_VERSION

USAGE = "usage: csi-node-sidecar version [-o json]"


def said(capsys: pytest.CaptureFixture[str], *words: str, **environ: str) -> str:
    assert version.run(words, environ) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("words", [(), ("-o", "text")])
def test_one_line_for_people(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert said(capsys, *words) == f"csi-node-sidecar {sidecar.__version__}\n"


@pytest.mark.parametrize("words", [("-o", "json"), ("-ojson",), ("--output=json",)])
def test_json_says_what_an_issue_needs(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    told = json.loads(said(capsys, *words))
    assert told == {
        "version": sidecar.__version__,
        "gitCommit": None,
        "csi": CSI_VERSION,
        "python": platform.python_version().rstrip("+"),
        "platform": told["platform"],
    }
    system, _, architecture = told["platform"].partition("/")
    assert system == platform.system().lower() and architecture not in ("", "x86_64", "aarch64")


@pytest.mark.parametrize(("variable", "commit"), [("0123abc", "0123abc"), ("", None)], ids=["told", "not told"])
def test_the_commit_is_the_one_that_the_image_says(capsys: pytest.CaptureFixture[str], variable: str, commit: str | None) -> None:
    environ = {version.REVISION: variable}
    assert json.loads(said(capsys, "-o", "json", **environ))["gitCommit"] == commit


@pytest.mark.parametrize("words", [("-o", "xml"), ("it",), ("--kubeconfig=k",), ("--nonsense",)])
def test_what_it_does_not_take_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as refused:
        version.run(words, {})
    assert USAGE in refused.value.messages


def test_help_is_its_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--help") == f"{USAGE}\n"
