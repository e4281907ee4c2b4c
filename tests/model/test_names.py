"""Names that other programs see must be upstream's to the letter."""

import pytest

from sidecar.model.names import capacity_manager, volume_name


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
