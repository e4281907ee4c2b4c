"""Guards of the program that are left out, one at a time, in a copy of the tree: what should notice must notice.

`hack/fire --mutate` plays them. A text that is not in its file any more is a fault of this table, and is told by the mutation's name.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_COPIED: Final = ("sidecar", "csi_proto", "hack", "tests", "deploy", "pyproject.toml")


@dataclass(frozen=True)
class Mutation:
    """`notices`: tests; or `theme:seed seed …`, of which one world must break a promise."""

    name: str
    file: str
    old: str
    new: str
    notices: str


MUTATIONS: Final = (
    Mutation(
        "a creation is begun without a line in the journal",
        "provisioning/effects/creation_log.py",
        "        why = await self.journal.begin(record)\n        if why and before",
        '        why = ""\n        if why and before',
        "tests/world/test_claims.py -k dies_while_its_driver_works",
    ),
    Mutation(
        "two nodes may take one claim",
        "ownership/selected_node_body.py",
        "    _annotations(obj)[names.SELECTED_NODE] = node\n",
        '    _annotations(obj)[names.SELECTED_NODE] = node\n    del obj["metadata"]["resourceVersion"]\n',
        "tests/ownership/test_selected_node_body.py",
    ),
    Mutation(
        "a released PersistentVolume goes before the driver has deleted its volume",
        "provisioning/volume_rules.py",
        '    return Empty(volume, secret, f"released by {_claim_of(volume)}, reclaim policy Delete")',
        '    return Remove(volume, f"released by {_claim_of(volume)}, reclaim policy Delete")',
        "tests/provisioning/test_volume_rules.py",
    ),
    Mutation(
        "what says Retain is deleted too",
        "provisioning/volume_rules.py",
        '    if volume.reclaim_policy != "Delete":\n        return Rest(',
        '    if volume.reclaim_policy not in ("Delete", "Retain"):\n        return Rest(',
        "tests/provisioning/test_volume_rules.py",
    ),
    Mutation(
        "the driver is asked to delete volumes of other nodes",
        "local/volume_location.py",
        "    made_here = _was_made_here(here, identity)\n    if affinity",
        "    return True\n    made_here = _was_made_here(here, identity)\n    if affinity",
        "claims:0",
    ),
    Mutation(
        "capacity objects of other drivers and managers are taken for ours",
        "capacity/rules.py",
        "(labels.get(names.CAPACITY_DRIVER_LABEL), labels.get(names.CAPACITY_MANAGER_LABEL)) == (publisher.driver, publisher.manager)",
        "True",
        "tests/capacity/test_rules.py",
    ),
    Mutation(
        "a verdict that is not known opens the gate",
        "drain/gate.py",
        "view.verdict is Status.TRUE and (view.draining",
        "view.verdict is not Status.FALSE and (view.draining",
        "tests/drain/test_gate.py -k ignorance_never_opens",
    ),
    Mutation(
        "a node is ready to retire while a volume is being made on it",
        "drain/snapshot.py",
        "        in_flight=tuple(_in_flight(raw, node_name, driver, own)),",
        "        in_flight=(),",
        "tests/drain/test_where.py -k being_created_here",
    ),
    Mutation(
        "a replica is evicted while another one is away",
        "drain/empty.py",
        "        if not peer.ready or peer.deleting_since or not peer.node:\n",
        "        if False:\n",
        "tests/drain/test_empty.py -k another_replica_is_away",
    ),
    Mutation(
        "an eviction hits whatever pod has the name by now",
        "eviction/attempt_io.py",
        ', "preconditions": {"uid": pod.uid}}',
        "}",
        "tests/world/test_emptying.py -k all_that_may_leave",
    ),
    Mutation(
        "a claim is deleted whatever it is by now",
        "drain/anew_io.py",
        "namespace=claim.namespace, uid=uid, resource_version=version)",
        "namespace=claim.namespace)",
        "tests/world/test_reprovision.py -k where_nothing_happens",
    ),
    Mutation(
        "a claim is deleted though a lock was shut since it was looked at",
        "drain/anew_io.py",
        "        if not isinstance(step, wanted):\n",
        "        if False:\n",
        "tests/world/test_reprovision.py -k a_tool_acts",
    ),
    Mutation(
        "a claim is deleted though another replica is ready only since a moment",
        "drain/anew_locks.py",
        "    _replicas,\n    _in_sync,\n",
        "    _replicas,\n",
        "tests/world/test_reprovision.py -k time_to_copy",
    ),
    Mutation(
        "an undo is overlooked while the node stays cordoned",
        "drain/node_io.py",
        "    if marks.wish != picture.marks.wish or not is_under_way(marks.record, marks.wish):\n",
        "    if not fresh.unschedulable and not is_under_way(marks.record, marks.wish):\n",
        "tests/drain/test_undo_under_a_cordon.py",
    ),
    Mutation(
        "a lost node is cleared up though nobody has said that its disks do not come back",
        "drain/watch/loss.py",
        "        return self.evidence in (Evidence.ANNOUNCED, Evidence.ACKNOWLEDGED)",
        "        return self.evidence is not Evidence.UNPROVEN",
        "tests/world/test_node_loss.py -k otherwise_nothing_is_touched",
    ),
    Mutation(
        "the Node of a lost machine is not looked for again before its things go",
        "drain/watch/loss_io.py",
        "        now = await self._loss(loss.machine)\n        if now is None",
        "        now = loss\n        if now is None",
        "tests/world/test_node_loss.py -k what_was_announced",
    ),
    Mutation(
        "a node that was cordoned before its maintenance is uncordoned after it",
        "drain/maintenance/step.py",
        "(False if view.node.unschedulable and not prior else None)",
        "(False if view.node.unschedulable else None)",
        "tests/world/test_maintenance.py -k all_stages",
    ),
    Mutation(
        "how a node was before is noted anew in each pass",
        "drain/maintenance/step.py",
        "        prior = view.node.unschedulable if prior is None else prior\n",
        "        prior = view.node.unschedulable\n",
        "tests/world/test_maintenance.py -k all_stages",
    ),
    Mutation(
        "a node goes on to the next entry without the other nodes of its maintenance",
        "drain/maintenance/plan.py",
        "*(peer.finished or 0 for peer in self.peers if not peer.ignored)]",
        "]",
        "tests/world/test_maintenance.py -k all_stages",
    ),
    Mutation(
        "a node is drained in every stage",
        "drain/maintenance/objects.py",
        'else Stage(spec.get("stage") or Stage.IDLE),',
        "else Stage.DRAIN,",
        "tests/world/test_maintenance.py -k all_stages",
    ),
    Mutation(
        "a pod is evicted whatever its rule or its label says",
        "drain/maintenance/step.py",
        "    return each.behavior is Behavior.DRAIN and not pod",
        "    return not pod",
        "tests/world/test_maintenance.py -k all_stages",
    ),
    Mutation(
        "a label that says that a pod is not to be drained is overlooked",
        "drain/maintenance/plan.py",
        "    if label in _OF_LABEL:\n",
        "    if False:\n",
        "tests/world/test_maintenance.py -k all_stages",
    ),
    Mutation(
        "a team's rule counts in every namespace",
        "drain/maintenance/plan.py",
        "for rule in rules.get(pod.namespace, ()) if",
        "for group in rules.values() for rule in group if",
        "tests/world/test_maintenance.py -k all_stages",
    ),
    Mutation(
        "a new maintenance takes a node back to an earlier entry",
        "drain/maintenance/plan.py",
        "    return max(reached or (0, 0, 0), min((one.key for one in drains), default=END))",
        "    return min((one.key for one in drains), default=END)",
        "tests/world/test_maintenance.py -k all_stages",
    ),
    Mutation(
        "a deadline begins anew in each pass",
        "drain/maintenance/step.py",
        "before.started_at is not None and before.started_at <= now else now",
        "False else now",
        "tests/world/test_maintenance.py -k all_stages",
    ),
    Mutation(
        "the conditions of a maintenance that is over are left on its node",
        "drain/maintenance/executor_io.py",
        "for kind in ours if kind not in wanted]",
        "for kind in ours if not kind]",
        "tests/world/test_maintenance.py -k all_stages",
    ),
    Mutation(
        "an entry counts as done although the node is not cordoned yet",
        "drain/maintenance/step.py",
        "    for each in view.drains if ready else ():\n",
        "    for each in view.drains:\n",
        "tests/drain/test_maintenance_step.py -k only_a_node_that_is_cordoned",
    ),
    Mutation(
        "a request that fails puts an override off",
        "drain/maintenance/executor_io.py",
        "            await self._override(stored, node, record, active)\n",
        "",
        "tests/cases/drain/test_maintenance.py -k puts_the_override_off",
    ),
)


def mutate(repository: Path) -> int:
    """1 if something is not noticed."""
    missed = 0
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        for name in _COPIED:
            copy(repository / name, Path(folder) / name)
        for mutation in MUTATIONS:
            file = Path(folder) / "sidecar" / mutation.file
            text = file.read_text() if file.exists() else ""
            if text.count(mutation.old) != 1:
                missed += 1
                print(f"NOT TRIED  {mutation.name}: its text is not in sidecar/{mutation.file} once", flush=True)
                continue
            if is_noticed(mutation.notices, Path(folder)):
                missed += 1
                print(f"NOT TRIED  {mutation.name}: {mutation.notices} fails without it as well", flush=True)
                continue
            file.write_text(text.replace(mutation.old, mutation.new))
            noticed = is_noticed(mutation.notices, Path(folder))
            file.write_text(text)
            missed += not noticed
            print(f"{'noticed' if noticed else 'NOT NOTICED'}  {mutation.name}: {mutation.notices}", flush=True)
    return 1 if missed else 0


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    elif source.exists():
        shutil.copy(source, target)


def is_noticed(notices: str, folder: Path) -> bool:
    """A test that fails notices; one that cannot be collected does not."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    theme, colon, seeds = notices.partition(":")
    if colon:
        for seed in seeds.split():
            command = [sys.executable, "hack/fire", "--worlds", theme, "--seed", seed]
            if "\nVIOLATION " in subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False).stdout:
                return True
        return False
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *notices.split()]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False).returncode == 1
