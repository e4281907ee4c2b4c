"""What an earlier process with --allow-reprovision has left, where this one runs without it."""

import json

from hack.sim.cluster import Call
from hack.sim.world.node import DRIVER
from sidecar.kube.api import CLAIMS, LEASES
from sidecar.kube.errors import ApiError, Forbidden
from sidecar.model import names
from tests.harness.drain import simulated
from tests.harness.drain.reprovision import ARGS
from tests.harness.drain.simulated import Bench, all_of, node_of, wait, with_pod


async def left_by(bench: Bench, holder: str, claim: str, mark: str) -> None:
    await with_pod(bench, claim)
    notes = {"metadata": {"annotations": {names.REPROVISIONED_BY: mark}}}
    uid = (await bench.you.patch(CLAIMS, claim, notes, namespace="default", content_type="application/merge-patch+json"))["metadata"]["uid"]
    said = {"stage": "Evicting", "namespace": "default", "pod": claim, "podUID": "u", "workload": "db", "workloadUID": f"w-{claim}"}
    said |= {"claims": [{"name": claim, "uid": uid}], "begunAt": 1.0, "at": 1.0}
    meta = {"name": names.reprovision(f"w-{claim}", DRIVER), "labels": {names.REPROVISION_FOR: DRIVER}}
    meta["annotations"] = {names.REPROVISION_RECORD: json.dumps(said)}
    await bench.you.create(LEASES, {"metadata": meta, "spec": {"holderIdentity": holder}}, namespace="default")


def test_the_own_lease_and_its_marks_go_and_those_of_others_stay() -> None:
    def case(may_patch: bool, args: tuple[str, ...]) -> None:
        def refuse(call: Call) -> ApiError | None:
            return None if may_patch or call.resource != CLAIMS or call.verb != "patch" else Forbidden("no such right", status=403)

        async def story(bench: Bench) -> None:
            uid = (await node_of(bench))["metadata"]["uid"]
            await left_by(bench, f"{uid}/{DRIVER}", "mine", f"n0/{uid}")
            await left_by(bench, f"uid-other/{DRIVER}", "foreign", "n9/uid-other")
            bench.nodes["n0"].kill()
            await wait(bench, 60)
            of_workloads = {
                lease["metadata"]["name"] for lease in await all_of(bench, LEASES) if lease["metadata"]["name"].startswith("repr")
            }
            assert of_workloads == {names.reprovision("w-foreign", DRIVER)}
            marked = {
                item["metadata"]["name"]
                for item in await all_of(bench, CLAIMS)
                if names.REPROVISIONED_BY in item["metadata"]["annotations"]
            }
            assert marked == ({"foreign"} if may_patch else {"foreign", "mine"})

        simulated.play(story, args=args, refuse=refuse)

    for may_patch in [True, False]:
        for args in [
            ARGS,  # evicts
            simulated.JUDGING,  # evicts nobody either
        ]:
            case(may_patch, args)
