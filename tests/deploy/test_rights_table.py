"""The table of rights is that of the sample roles, right by right, and of what the program lists and watches."""

import re

import pytest

from sidecar.rights.rights import PATCH_VOLUMES, UPDATE_VOLUMES, Rights
from sidecar.rights.table import TABLE, Row, Sample, missing
from tests.deploy.manifests import DEPLOY, written
from tests.night import rights_table as played

FILES = {sample: (*sample.value.split("/"), "rbac.yaml") for sample in Sample if sample.value}
Granted = tuple[str, str, str, bool]
"""Group, resource with its subresource, verb, and whether in one namespace alone."""


def granted_by(sample: Sample) -> set[Granted]:
    return {
        (group, resource, verb, role["kind"] == "Role")
        for role in written(*FILES[sample])
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def needed(row: Row) -> Granted:
    right = row.right
    part = f"/{right.subresource}" if right.subresource else ""
    return right.resource.group, f"{right.resource.plural}{part}", right.verb, right.own_namespace


@pytest.mark.parametrize("sample", FILES, ids=str)
def test_the_table_has_what_the_sample_grants_and_no_more(sample: Sample) -> None:
    assert {needed(row) for row in TABLE if sample in row.samples} == granted_by(sample)


PLAYED = {
    (Sample.BASE,): (*played.VOLUMES, *played.BESIDE),
    (Sample.DRAIN, Sample.GATE): played.DRAINS,
    (Sample.REPORT,): played.REPORT_ONLY,
    (Sample.NODE_LOSS,): played.LOSS,
}


@pytest.mark.parametrize("samples", PLAYED, ids=str)
def test_at_night_each_right_is_taken_away_once_and_no_other(samples: tuple[Sample, ...]) -> None:
    taken = [right for row in PLAYED[samples] for right in (row.right, *row.also)]
    assert len({*taken}) == len(taken)
    assert {*taken} == {row.right for row in TABLE if {*samples} & row.samples}


def test_no_other_role_is_for_the_program() -> None:
    """That of components/scoped-watches is for people who label claims by hand; of the others tests of their own tell whose they are."""
    with_roles = {file.parent for file in DEPLOY.rglob("*.yaml") if re.search(r"^kind: (Cluster)?Role$", file.read_text(), re.MULTILINE)}
    others = {DEPLOY / "chart" / "templates", DEPLOY / "examples" / "csi-driver-host-path" / "tried" / "stand-in"}
    assert with_roles - others == {DEPLOY.joinpath(*parts).parent for parts in FILES.values()} | {DEPLOY / "components" / "scoped-watches"}


def test_each_right_is_there_once() -> None:
    assert len({row.right for row in TABLE}) == len(TABLE)


def test_what_is_missing_is_told_with_the_right_that_brings_it_back() -> None:
    nothing = Rights(refused=frozenset(row.right for row in TABLE))
    told = missing(nothing)
    assert {row.right for row in told} == {row.right for row in TABLE if row.off}
    assert all(str(row.right) in row.remedy for row in told)
    assert missing(Rights()) == [], "what is not known is not missing"


def test_patch_is_not_missed_where_update_does_as_well() -> None:
    by_update = Rights(frozenset({UPDATE_VOLUMES}), frozenset({PATCH_VOLUMES}))
    assert missing(by_update) == []
    assert [row.right for row in missing(Rights(refused=frozenset({PATCH_VOLUMES, UPDATE_VOLUMES})))] == [PATCH_VOLUMES]
