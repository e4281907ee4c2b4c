"""Which cluster, user and namespace a kubeconfig leads to: one file or several, with its current context or another."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecar.errors import Fatal
from sidecar.kube import kubeconfig
from sidecar.kube.client import open_client


def written(file: Path, *, current: str | None = None, contexts: dict[str, dict[str, str]] | None = None, **more: Any) -> Path:
    """Each context has a cluster and a user of its name, unless it says otherwise. The cluster's server is named after the file."""
    contexts = contexts or {}
    content: dict[str, Any] = {
        "clusters": [{"name": name, "cluster": {"server": f"http://{name}.{file.name}"}} for name in contexts],
        "users": [{"name": name, "user": {"token": f"{name} of {file.name}"}} for name in contexts],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name} | more} for name, more in contexts.items()],
    }
    if current is not None:
        content["current-context"] = current
    file.write_text(yaml.safe_dump(content | more))
    return file


def led_to(*files: Path, context: str = "") -> tuple[str, str, str]:
    """Server, token and namespace."""

    async def main() -> tuple[str, str, str]:
        found = await kubeconfig.read(":".join(map(str, files)), context=context, clock=lambda: 0.0)
        return found.server, await found.authorization(), found.namespace

    return asyncio.run(main())


def refused(*files: Path, context: str = "") -> str:
    with pytest.raises(Fatal) as wrong:
        led_to(*files, context=context)
    assert "\n" not in str(wrong.value)
    return str(wrong.value)


def test_the_current_context_counts_and_another_one_if_it_is_named(tmp_path: Path) -> None:
    file = written(tmp_path / "f", current="prod", contexts={"prod": {}, "staging": {"namespace": "team-a"}})
    assert led_to(file) == ("http://prod.f", "Bearer prod of f", "")
    assert led_to(file, context="staging") == ("http://staging.f", "Bearer staging of f", "team-a")


def test_of_several_files_the_first_one_that_says_something_counts(tmp_path: Path) -> None:
    """As kubectl has it. The client library would take the current context of the last file: another cluster."""
    one = written(tmp_path / "one", current="a", contexts={"a": {"namespace": "of-one"}})
    two = written(tmp_path / "two", current="b", contexts={"a": {"namespace": "of-two"}, "b": {}})
    assert led_to(one, two) == ("http://a.one", "Bearer a of one", "of-one")
    assert led_to(two, one) == ("http://b.two", "Bearer b of two", "")
    assert led_to(one, two, context="b") == ("http://b.two", "Bearer b of two", "")


@pytest.mark.parametrize("current", [None, ""])
def test_a_file_that_names_no_current_context_leaves_it_to_the_next(current: str | None, tmp_path: Path) -> None:
    one = written(tmp_path / "one", current=current, contexts={"a": {}})
    two = written(tmp_path / "two", current="a")
    assert led_to(one, two)[0] == "http://a.one"


def test_a_context_may_take_its_cluster_and_user_from_another_file(tmp_path: Path) -> None:
    one = written(tmp_path / "one", current="mine", contexts={"other": {}})
    two = written(tmp_path / "two", contexts={"mine": {"cluster": "other", "user": "mine"}})
    assert led_to(one, two) == ("http://other.one", "Bearer mine of two", "")


def test_files_that_are_missing_or_empty_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    file = written(tmp_path / "f", current="a", contexts={"a": {}})
    assert led_to(tmp_path / "missing", tmp_path / "empty", file)[0] == "http://a.f"


def test_a_path_in_a_file_begins_in_its_own_folder(tmp_path: Path) -> None:
    one = written(tmp_path / "one", current="a")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "token").write_text("beside-it\n")
    two = written(folder / "two", contexts={"a": {}}, users=[{"name": "a", "user": {"tokenFile": "token"}}])
    assert led_to(one, two)[1] == "Bearer beside-it"


@pytest.mark.parametrize(
    ("contexts", "current", "context", "said"),
    [
        ({"a": {}, "b": {}}, "a", "c", 'has no context "c"; its contexts are a, b'),
        ({"a": {}}, "gone", "", 'has no context "gone"; its contexts are a'),
        ({"a": {}}, None, "", "cannot be used: it says of no context that it is the current one; its contexts are a"),
        ({}, None, "c", "cannot be used: it is empty, or its content is no kubeconfig: it has no context"),
        (
            {f"c{number}": {} for number in range(9)},
            None,
            "x",
            'has no context "x"; its contexts are c0, c1, c2, c3, c4, c5, c6, c7 and 1 more',
        ),
    ],
)
def test_a_context_that_is_not_there_is_told_with_those_that_are(
    contexts: dict[str, dict[str, str]], current: str | None, context: str, said: str, tmp_path: Path
) -> None:
    file = written(tmp_path / "f", current=current, contexts=contexts)
    assert refused(file, context=context) == f"kubeconfig {file} {said}"


def test_what_is_wrong_with_a_file_is_told_without_its_secrets(tmp_path: Path) -> None:
    file = written(tmp_path / "f", current="a", contexts={"a": {}})
    file.write_text(file.read_text().replace("cluster: a\n", "cluster: nowhere\n"))
    said = refused(file)
    assert str(file) in said and "nowhere" in said and "a of f" not in said


def test_a_file_that_nests_without_end_is_no_kubeconfig(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("users: " + "[" * 5_000)
    assert "its content is no kubeconfig" in refused(file)


def test_a_home_that_nobody_has_holds_no_file() -> None:
    assert refused(Path("~nobody-of-that-name/config")) == "kubeconfig ~nobody-of-that-name/config: no such file"


def test_the_client_knows_the_namespace_also_with_limits_of_its_own(tmp_path: Path) -> None:
    file = written(tmp_path / "f", current="a", contexts={"a": {}, "b": {"namespace": "team-b"}})

    async def main() -> tuple[str, str]:
        async with await open_client(kubeconfig=str(file), context="b", request_timeout=float("inf"), environ={}) as client:
            return client.namespace, client.with_limits(qps=1.0, burst=1).namespace

    assert asyncio.run(main()) == ("team-b", "team-b")
