"""Guards of the program that are left out, one at a time, in a copy of the tree: what should notice must notice.

`hack/fire --mutate` plays them. A text that is not in its file any more is a fault of this list, and is told by the mutation's name.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_COPIED: Final = ("sidecar", "csi_proto", "hack", "tests", "deploy", "pyproject.toml")
_MUTATIONS: Final = """
a creation is begun without a line in the journal
provisioning/effects/creation_log.py tests/world/test_claims.py -k dies_while_its_driver_works
-        why = await self.journal.begin(record)
-        if why and before
+        why = ""
+        if why and before

two nodes may take one claim
ownership/selected_node_body.py tests/ownership/test_selected_node_body.py
-    _annotations(obj)[names.SELECTED_NODE] = node
+    _annotations(obj)[names.SELECTED_NODE] = node
+    del obj["metadata"]["resourceVersion"]

a released PersistentVolume goes before the driver has deleted its volume
provisioning/volume_rules.py tests/provisioning/test_volume_rules.py
-    return Empty(volume, secret, f"released by {_claim_of(volume)}, reclaim policy Delete")
+    return Remove(volume, f"released by {_claim_of(volume)}, reclaim policy Delete")

what says Retain is deleted too
provisioning/volume_rules.py tests/provisioning/test_volume_rules.py
-    if volume.reclaim_policy != "Delete":
-        return Rest(
+    if volume.reclaim_policy not in ("Delete", "Retain"):
+        return Rest(

the driver is asked to delete volumes of other nodes
local/volume_location.py claims:0
-    made_here = _was_made_here(here, identity)
-    if affinity
+    return True
+    made_here = _was_made_here(here, identity)
+    if affinity

capacity objects of other drivers and managers are taken for ours
capacity/rules.py tests/capacity/test_rules.py
-(labels.get(names.CAPACITY_DRIVER_LABEL), labels.get(names.CAPACITY_MANAGER_LABEL)) == (publisher.driver, publisher.manager)
+True

a verdict that is not known opens the gate
drain/gate.py tests/drain/test_gate.py -k ignorance_never_opens
-view.verdict is Status.TRUE and (view.draining
+view.verdict is not Status.FALSE and (view.draining

a node is ready to retire while a volume is being made on it
drain/snapshot.py tests/drain/test_where.py -k being_created_here
-        in_flight=tuple(_in_flight(raw, node_name, driver, own)),
+        in_flight=(),

a replica is evicted while another one is away
drain/empty.py tests/drain/test_empty.py -k another_replica_is_away
-        if not peer.ready or peer.deleting_since or not peer.node:
+        if False:

an eviction hits whatever pod has the name by now
eviction/attempt_io.py tests/eviction/test_attempt_io.py -k one_post
-, "preconditions": {"uid": pod.uid}}
+}

a claim is deleted whatever it is by now
drain/anew_io.py tests/world/test_reprovision.py -k where_nothing_happens
-namespace=claim.namespace, uid=uid, resource_version=version, dry_run=dry_run)
+namespace=claim.namespace, dry_run=dry_run)

a claim is deleted though a lock was shut since it was looked at
drain/anew_io.py tests/world/test_reprovision.py -k a_tool_acts
-        if isinstance(step, Hold) or step.do is not wanted:
+        if False:

a claim is deleted though another replica is ready only since a moment
drain/anew_locks.py tests/drain/test_anew_in_sync.py -k first_one_waits
-    _replicas,
-    _in_sync,
+    _replicas,

an undo is overlooked while the node stays cordoned
drain/node_io.py tests/drain/test_undo_under_a_cordon.py
-    if marks.wish != picture.marks.wish or not is_under_way(marks.record, marks.wish):
+    if not fresh.unschedulable and not is_under_way(marks.record, marks.wish):

a lost node is cleared up though nobody has said that its disks do not come back
drain/watch/loss.py tests/drain/test_gone_nodes_io.py -k evidence_is_needed
-        return self.evidence in (Evidence.ANNOUNCED, Evidence.ACKNOWLEDGED)
+        return self.evidence is not Evidence.UNPROVEN

the Node of a lost machine is not looked for again before its things go
drain/watch/loss_io.py tests/drain/test_gone_nodes_paused.py -k G1
-        now = await self._loss(loss.machine)
-        if now is None
+        now = loss
+        if now is None

a node that was cordoned before its maintenance is uncordoned after it
drain/maintenance/step.py tests/world/test_maintenance.py
-(False if view.node.unschedulable and not prior else None)
+(False if view.node.unschedulable else None)

how a node was before is noted anew in each pass
drain/maintenance/step.py tests/world/test_maintenance.py
-        prior = view.node.unschedulable if prior is None else prior
+        prior = view.node.unschedulable

a node goes on to the next entry without the other nodes of its maintenance
drain/maintenance/plan.py tests/world/test_maintenance.py
-*(peer.finished or 0 for peer in self.peers if not peer.ignored)]
+]

a node is drained in every stage
drain/maintenance/objects.py tests/world/test_maintenance.py
-else Stage(spec.get("stage") or Stage.IDLE),
+else Stage.DRAIN,

a pod is evicted whatever its rule or its label says
drain/maintenance/step.py tests/world/test_maintenance.py
-    return each.behavior is Behavior.DRAIN and not pod
+    return not pod

a label that says that a pod is not to be drained is overlooked
drain/maintenance/plan.py tests/world/test_maintenance.py
-    if label in OF_LABEL:
+    if False:

a team's rule counts in every namespace
drain/maintenance/plan.py tests/world/test_maintenance.py
-for rule in rules.get(pod.namespace, ()) if
+for group in rules.values() for rule in group if

a new maintenance takes a node back to an earlier entry
drain/maintenance/plan.py tests/world/test_maintenance.py
-    return max(reached or (0, 0, 0), min((one.key for one in drains), default=END))
+    return min((one.key for one in drains), default=END)

a deadline begins anew in each pass
drain/maintenance/step.py tests/world/test_maintenance.py
-before.started_at is not None and before.started_at <= now else now
+False else now

the conditions of a maintenance that is over are left on its node
drain/maintenance/executor_io.py tests/world/test_maintenance.py
-for kind in ours if kind not in wanted]
+for kind in ours if not kind]

an entry counts as done although the node is not cordoned yet
drain/maintenance/step.py tests/drain/test_maintenance_step.py -k only_a_node_that_is_cordoned
-    for each in view.drains if ready else ():
+    for each in view.drains:

a request that fails puts an override off
drain/maintenance/executor_io.py tests/cases/drain/test_maintenance.py -k puts_the_override_off
-            await self._override(stored, node, record, active)

a node that is not Ready counts as one whose power was cut
failover/evidence.py tests/world/test_failover.py -k not_ready_has
-    said = node.labels.get(POWERED_OFF, "")
+    said = boot_id

quorum is taken for the right to become Primary
failover/evidence.py failover:9
-        (resource.up_to_date, True, "this node's disk is not UpToDate", "the state of this node's disk is not known"),
-        (resource.may_promote, True, "it may not become Primary here", "whether it may become Primary here is not known"),

evidence of any age counts
failover/evidence.py tests/world/test_failover.py -k too_old
-MOST_AGE: Final = 12.0
+MOST_AGE: Final = 1e9

the evidence is not looked at again right before a write
failover/controller.py tests/failover/test_story.py -k f46
-            return self._clock() - asked_at <= FRESH and all(self._proof(volume.handle, seen).holds for volume in unit.proven)
+            return True

attachments go before their pods
failover/survivor.py failover:0
-    found = _detach(unit, cluster) if unit.pod is None else _replace(unit.pod, unit, cluster)
+    is_attached = any(volume.attached and not volume.attached.deleting for volume in unit.volumes)
+    found = _detach(unit, cluster) if unit.pod is None or is_attached else _replace(unit.pod, unit, cluster)

one volume of two is enough
failover/look_io.py tests/world/test_failover.py -k one_volume_of_two
-        volumes = tuple(one for one in mounted if isinstance(one, PodVolume))
+        volumes = tuple(one for one in mounted[:1] if isinstance(one, PodVolume))

most nodes seem lost, and it goes on
failover/controller.py failover:62
-        if now < self._frozen_until:
+        if False:

what is done is not counted in the Lease, nor is that held
failover/controller.py tests/world/test_failover.py -k again_and
-        if forbidden or not isinstance(await lease.hold(record=after.as_text(), now=True), Held):
-            return False

a taint is written on whatever version of the Node there is by now
failover/controller.py failover:0
-        meta = {"uid": node.uid, "resourceVersion": stored["metadata"]["resourceVersion"]}
+        meta = {"uid": node.uid}

a claim is marked whatever it is by now
drain/anew_io.py reprovision:3
-        meta: Json = {"uid": claim.uid, "resourceVersion": claim.resource_version, "annotations": {names.REPROVISIONED_BY: value}}
+        meta: Json = {"annotations": {names.REPROVISIONED_BY: value}}
"""
# By line: what is left out; the file in sidecar/, and what notices (tests, or the `theme:seed` of a world that breaks a promise); a diff.


def mutations() -> Iterator[tuple[str, str, str, str, str]]:
    """Name, file, what notices, old and new text."""
    for block in _MUTATIONS.strip().split("\n\n"):
        name, where, *lines = block.split("\n")
        file, _, notices = where.partition(" ")
        old, new = ("\n".join(line[1:] for line in lines if line[0] == sign) for sign in "-+")
        yield name, file, notices, old, new


def mutate(repository: Path) -> int:
    """1 if something is not noticed."""
    missed = 0
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        for name in _COPIED:
            source, target = repository / name, Path(folder) / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
            else:
                shutil.copy(source, target)
        for name, path, notices, old, new in mutations():
            file = Path(folder) / "sidecar" / path
            text = file.read_text() if file.exists() else ""
            if text.count(old) != 1:
                told = f"NOT TRIED  {name}: its text is not in sidecar/{path} once"
            elif is_noticed(notices, Path(folder)):
                told = f"NOT TRIED  {name}: {notices} fails without it as well"
            else:
                file.write_text(text.replace(old, new))
                told = f"{'noticed' if is_noticed(notices, Path(folder)) else 'NOT NOTICED'}  {name}: {notices}"
                file.write_text(text)
            missed += not told.startswith("noticed")
            print(told, flush=True)
    return 1 if missed else 0


def is_noticed(notices: str, folder: Path) -> bool:
    """A test that fails notices; one that cannot be collected does not."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    theme, colon, seed = notices.partition(":")
    if colon:
        command = [sys.executable, "hack/fire", "--worlds", theme, "--seed", seed]
        return "\nVIOLATION " in subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False).stdout
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *notices.split()]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False).returncode == 1
