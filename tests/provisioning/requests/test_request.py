"""CreateVolume from claim, class and node: the plain path, and what is refused and how."""

from typing import Any

from sidecar.csi.api import CREATE_DELETE_VOLUME, SINGLE_NODE_MULTI_WRITER, Capability, CapacityQuery, CreateRequest
from sidecar.model.topology import Segment
from sidecar.provisioning.requests.request import Unfit, build, capacity_query
from tests.harness import samples

FOO = Segment.of({samples.KEY: "foo"})
BAR = Segment.of({samples.KEY: "bar"})


def request(*, claim: dict[str, Any] | None = None, class_: dict[str, Any] | None = None, **here: Any) -> CreateRequest:
    built = build(samples.here(**here), samples.claim(selected="foo", **(claim or {})), samples.class_(**(class_ or {})))
    assert isinstance(built, CreateRequest), built
    return built


def unfit(*, claim: dict[str, Any] | None = None, class_: dict[str, Any] | None = None, **here: Any) -> str:
    built = build(samples.here(**here), samples.claim(selected="foo", **(claim or {})), samples.class_(**(class_ or {})))
    assert isinstance(built, Unfit), built
    return built.why


def test_the_plain_request() -> None:
    assert request() == CreateRequest(
        name="test-testi",
        required_bytes=100,
        capabilities=(Capability("SINGLE_NODE_WRITER", fs_type="ext4"),),
        parameters={},
        requisite=(FOO,),
        preferred=(FOO,),
    )


def test_R2_access_modes() -> None:
    for mode, capability in [
        ("ReadWriteMany", "MULTI_NODE_MULTI_WRITER"),
        ("ReadOnlyMany", "MULTI_NODE_READER_ONLY"),
        ("ReadWriteOnce", "SINGLE_NODE_WRITER"),
        ("ReadWriteOncePod", "SINGLE_NODE_WRITER"),
    ]:
        assert [item.access_mode for item in request(claim={"accessModes": [mode]}).capabilities] == [capability]


def test_R3_access_modes_of_a_driver_that_tells_single_node_writers_apart() -> None:
    for mode, capability in [("ReadWriteOnce", "SINGLE_NODE_MULTI_WRITER"), ("ReadWriteOncePod", "SINGLE_NODE_SINGLE_WRITER")]:
        driver = samples.info(controller=(CREATE_DELETE_VOLUME, SINGLE_NODE_MULTI_WRITER))
        assert [item.access_mode for item in request(claim={"accessModes": [mode]}, driver=driver).capabilities] == [capability]


def test_R4_two_modes_are_two_capabilities_in_order() -> None:
    built = request(claim={"accessModes": ["ReadOnlyMany", "ReadWriteOnce"]})
    assert [item.access_mode for item in built.capabilities] == ["MULTI_NODE_READER_ONLY", "SINGLE_NODE_WRITER"]


def test_R5_block_has_no_file_system() -> None:
    built = request(claim={"volumeMode": "Block"}, class_={"mountOptions": ["noatime"]})
    assert built.capabilities == (Capability("SINGLE_NODE_WRITER", block=True),)


def test_R6_mount_options_in_order() -> None:
    assert request(class_={"mountOptions": ["foo=bar", "baz=qux"]}).capabilities[0].mount_flags == ("foo=bar", "baz=qux")


def test_R7_a_selector_even_an_empty_one_is_refused() -> None:
    assert "selector" in unfit(claim={"selector": {}})


def test_R8_sizes_are_rounded_up_to_whole_bytes() -> None:
    for size, count in [("1500m", 2), ("1Gi", 1073741824)]:
        assert request(claim={"resources": {"requests": {"storage": size}}}).required_bytes == count


def test_sizes_that_cannot_be_are_refused() -> None:
    for size in ["lots", "-1", "9223372036854775808"]:
        assert "storage" in unfit(claim={"resources": {"requests": {"storage": size}}})


def test_R10_fs_type() -> None:
    for parameters, fs, passed_on in [
        ({"fstype": "xfs"}, "xfs", {"fstype": "xfs"}),
        ({"FsType": "xfs"}, "xfs", {"FsType": "xfs"}),
        ({"csi.storage.k8s.io/fstype": "ext3"}, "ext3", {}),
        ({"csi.storage.k8s.io/fstype": ""}, "ext4", {}),
        ({}, "ext4", {}),
    ]:
        built = request(class_={"parameters": parameters})
        assert built.capabilities[0].fs_type == fs
        assert dict(built.parameters) == passed_on


def test_two_file_systems_are_one_too_many() -> None:
    assert "more than once" in unfit(class_={"parameters": {"fstype": "xfs", "csi.storage.k8s.io/fstype": "ext3"}})


def test_R12_ordinary_parameters_pass_unchanged_whatever_their_values() -> None:
    parameters = {"csiFoo": "bar", "bim": "csi.storage.k8s.io/baz"}
    assert dict(request(class_={"parameters": parameters}).parameters) == parameters


def test_R13_an_unknown_reserved_parameter_is_refused_by_name() -> None:
    assert "csi.storage.k8s.io/bim" in unfit(class_={"parameters": {"csi.storage.k8s.io/bim": "x"}})


def test_R14_extra_metadata() -> None:
    assert dict(request(class_={"parameters": {"a": "b"}}, extra_create_metadata=True).parameters) == {
        "a": "b",
        "csi.storage.k8s.io/pvc/name": "fake-pvc",
        "csi.storage.k8s.io/pvc/namespace": "fake-ns",
        "csi.storage.k8s.io/pv/name": "test-testi",
    }


def allowed(*nodes: str, key: str = samples.KEY) -> list[dict[str, Any]]:
    return [{"matchLabelExpressions": [{"key": key, "values": list(nodes)}]}]


def test_R26_strict_topology_is_this_node_alone() -> None:
    built = request(class_={"allowedTopologies": allowed("bar", "foo")}, strict_topology=True)
    assert built.requisite == built.preferred == (FOO,)


def test_R27_strict_and_left_out_by_allowed_topologies() -> None:
    assert "leave out" in unfit(class_={"allowedTopologies": allowed("bar")}, strict_topology=True)
    two_keys = samples.info(segment={samples.KEY: "foo", "rack": "1"})
    built = request(class_={"allowedTopologies": allowed("1", key="rack")}, strict_topology=True, driver=two_keys)
    assert built.requisite == (two_keys.segment,)


def test_all_allowed_topologies_are_sent_when_strictness_is_not_asked_for_and_this_node_leads() -> None:
    built = request(class_={"allowedTopologies": allowed("bar", "foo")})
    assert (built.requisite, built.preferred) == ((BAR, FOO), (FOO, BAR))


def test_R33_a_topology_driver_without_topology_on_this_node() -> None:
    assert "reported none for node foo" in unfit(driver=samples.info(segment={}))


def test_a_topology_of_the_node_that_no_object_can_name_is_told_before_anything_is_made() -> None:
    assert "node foo that no PersistentVolume can name: 'rack' has" in unfit(driver=samples.info(segment={"rack": "no 1"}))


def test_S6_S7_without_topology_of_the_driver_or_by_its_gate_there_are_no_requirements() -> None:
    for here in ({"driver": samples.info(topology=False)}, {"topology_gate": False}):
        built = request(class_={"allowedTopologies": allowed("bar")}, **here)
        assert built.requisite == built.preferred == ()


def test_a_driver_that_cannot_create_is_named_with_the_capability() -> None:
    for missing in ["CONTROLLER_SERVICE", "CREATE_DELETE_VOLUME"]:
        driver = samples.info(controller=())
        if missing == "CONTROLLER_SERVICE":
            driver = type(driver)(driver.name, "", frozenset(), frozenset({"CREATE_DELETE_VOLUME"}), "foo", driver.segment)
        assert missing in unfit(driver=driver) and "dynamic provisioning" in unfit(driver=driver)


def test_an_unknown_access_mode_is_refused_by_name() -> None:
    assert "'ReadSometimes'" in unfit(claim={"accessModes": ["ReadSometimes"]})


def test_the_capacity_query_asks_for_what_would_be_created() -> None:
    here = samples.here()
    built = request(class_={"parameters": {"pool": "fast"}})
    assert capacity_query(here, built) == CapacityQuery({"pool": "fast"}, FOO, built.capabilities)
    without = samples.here(samples.info(topology=False))
    assert capacity_query(without, built).segment is None


def test_a_claim_without_a_uid_is_refused_because_its_volume_would_have_the_name_of_all_such() -> None:
    assert "uid is empty" in unfit(claim={"meta": {"uid": ""}})
