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


@pytest.mark.parametrize("words", [("-o", "xml"), ("it",), ("--kubeconfig=k",), ("--nonsense",)])
def test_what_it_does_not_take_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as refused:
        version.run(words, {})
    assert USAGE in refused.value.messages
