"""Feature gates are read, merged and resolved as upstream does."""

import pytest

from tests.harness.config import mistakes, parsed


def gates(*argv: str) -> dict[str, bool]:
    return dict(parsed(*argv).config.feature_gates)


DEFAULT_GATES = {"Topology": True, "CrossNamespaceVolumeDataSource": False, "VolumeAttributesClass": True}


def test_gates_have_upstreams_defaults():
    assert gates() == DEFAULT_GATES
    assert parsed().config.gates_named == frozenset()


def test_repeated_gates_merge_and_the_last_pair_wins():
    argv = ("--feature-gates= Topology = F ,,CrossNamespaceVolumeDataSource=false", "--feature-gates=CrossNamespaceVolumeDataSource=true")
    assert gates(*argv) == {"Topology": False, "CrossNamespaceVolumeDataSource": True, "VolumeAttributesClass": True}
    assert parsed(*argv).config.gates_named == {"Topology", "CrossNamespaceVolumeDataSource"}


def test_all_alpha_sets_what_is_not_named_itself():
    assert gates("--feature-gates=AllAlpha=true")["CrossNamespaceVolumeDataSource"] is True
    assert gates("--feature-gates=CrossNamespaceVolumeDataSource=false,AllAlpha=true") == DEFAULT_GATES


@pytest.mark.parametrize("name", ["Topology", "VolumeAttributesClass"])
def test_settled_gates_warn(name):
    (warning,) = parsed(f"--feature-gates={name}=true").warnings
    assert f"{name} is generally available" in warning


@pytest.mark.parametrize(
    "name",
    [
        "ReleaseLeaderElectionOnExit",
        "ContextualLogging",
        "LoggingAlphaOptions",
        "LoggingBetaOptions",
        "WatchList",
        "KMSv1",
        "HonorPVReclaimPolicy",
    ],
)
def test_gates_that_mean_nothing_here_are_accepted_with_a_warning(name):
    result = parsed(f"--feature-gates={name}=true")
    assert f"{name} is accepted and ignored" in result.warnings[0]
    assert dict(result.config.feature_gates) == DEFAULT_GATES


def test_all_beta_has_nothing_to_set():
    assert "AllBeta changes nothing" in parsed("--feature-gates=AllBeta=true").warnings[0]


def test_unknown_gates_and_bad_values_are_all_named():
    found = mistakes("--feature-gates=topologie=true,Topology,VolumeAttributesClass=on,QQ=true")
    assert [one.removeprefix("--feature-gates: ") for one in found] == [
        '"topologie" is not a feature gate; did you mean Topology?',
        '"Topology" is not Name=true or Name=false',
        'gate VolumeAttributesClass: "on" is not a boolean; write true or false',
        '"QQ" is not a feature gate; known are CrossNamespaceVolumeDataSource, Topology, VolumeAttributesClass',
    ]
