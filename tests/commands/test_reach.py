"""Which kubeconfig a command for people takes, and how long a request may take."""

from pathlib import Path

import pytest

from sidecar.commands.flags import REACH
from sidecar.commands.line import CommandParser
from sidecar.commands.reach import Reach, configured
from sidecar.config.config import Config
from sidecar.config.errors import UsageError


def config(*words: str, **environ: str) -> Config:
    line = CommandParser("usage", REACH).read(words)
    assert line is not None
    parsed = configured(line.of_run, Reach.of(line.own), environ)
    assert parsed is not None
    return parsed.config


@pytest.fixture
def home(tmp_path: Path) -> str:
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text("")
    return str(tmp_path)


def test_credentials_that_nobody_named_are_not_sent_to_a_server_that_somebody_did(home: str) -> None:
    assert config("--master=http://x", HOME=home).kubeconfig == ""
    assert config("--master=http://x", "--context=c", HOME=home).kubeconfig == f"{home}/.kube/config"
    assert config("--master=http://x", HOME=home, KUBECONFIG="/a").kubeconfig == "/a"


def test_a_home_that_may_not_be_looked_into_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "is_file", denied)
    assert config(HOME="/root").kubeconfig == ""


@pytest.mark.parametrize(
    ("text", "seconds"), [("10s", 10.0), ("1m30s", 90.0), ("7", 7.0), ("0", float("inf")), ("0s", float("inf")), ("500ms", 0.5)]
)
def test_limits_of_a_request_are_written_as_for_kubectl(text: str, seconds: float) -> None:
    assert config(f"--request-timeout={text}").request_timeout == seconds


@pytest.mark.parametrize("text", ["-1s", "soon", "", "10 s", "1e3", "٣"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--request-timeout"):
        config(f"--request-timeout={text}")
