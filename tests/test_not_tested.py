"""What a machine cannot run is skipped so that nobody overlooks it, and fails in continuous integration."""

import pytest

from tests.harness.not_tested import not_tested


def test_it_is_skipped_aloud_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    aloud = "^NOT TESTED: the cluster: no namespaces$"
    with pytest.warns(UserWarning, match=aloud), pytest.raises(pytest.skip.Exception, match=aloud):
        not_tested("the cluster", "no namespaces\nand more of it")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="CI must not pass without it"):
        not_tested("the cluster", "no namespaces")
