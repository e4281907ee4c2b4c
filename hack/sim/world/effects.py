"""Holds each eviction, each deletion and each mark by a sidecar against the truth at the moment it arrives.

A second reading of the promises, which shares no rule of drains with the product. It stands before the API server, and a verdict counts
only if the request is carried out. What was the case until a moment ago excuses a request that was on its way then.
"""

import contextvars
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from hack.sim.cluster.deletion import Options
from hack.sim.stand_ins import claims_of
from hack.sim.stand_ins import stateful_sets as objects
from hack.sim.world.node import DRIVER
from hack.sim.world.themes import ALLOW, CLEANUP, PAUSE
from hack.sim.world.verdicts import RETIRE, full_name, note, said
from sidecar.kube.api import ATTACHMENTS, CAPACITIES, CLAIMS, CSI_NODES, NODES, PODS, SNAPSHOT_CONTENTS, STATEFUL_SETS, VOLUMES, Resource
from sidecar.model import names
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.world.world import World

SENDER: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("sender", default="")
"""The node whose sidecar sends a request, also when its process is dead by then; empty: somebody else."""

CLAIM_DELETED: Final = "claim deleted"
TOUCHED: Final = "existing node touched"
NO_EVIDENCE: Final = "no evidence"
KEPT_GOES: Final = "kept goes"
UNGUARDED: Final = "whatever it is by now"
_HEEDED: Final = 15.0
"""Seconds until a sidecar heeds another word of an owner."""
_WHOLE: Final = 1.0
"""Objects say times in whole seconds."""
_MANAGER: Final = "external-provisioner-"


class Effects:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._store = world.cluster.store
        self._losable = ("Ignore", "Reprovision") if ALLOW in world.plan.args else ("Ignore",)
        self.evictions = 0
        self.deletions = 0
        """Of claims whose data is on the node that deletes them."""
        self.touches = 0
        """Of what other machines have left."""
        self._allowed: dict[str, float] = {}
        """By claim: when its policy let it go last."""
        self._asked: dict[str, float] = {}
        """By node: when somebody asked for it to be emptied last."""
        self._evicted: set[str] = set()
        """Uids of pods."""
        self._missed: set[tuple[str, str]] = set()
        """Sidecars by node that were told that there is no such Node, and have touched nothing since."""
        cluster = world.cluster
        self._post: Callable[..., Any] = cluster.post
        self._delete: Callable[..., Any] = cluster.delete
        self._patch: Callable[..., Any] = cluster.patch
        cluster.post, cluster.delete, cluster.patch = self._on_post, self._on_delete, self._on_patch  # type: ignore[method-assign]

    def sample(self) -> None:
        """Who may leave now, and which nodes are to be emptied. Here no node is emptied for a cordon alone."""
        for claim in self._store.all_of(CLAIMS):
            if (note(claim, names.DRAIN_POLICY_RETIRE) or note(claim, names.DRAIN_POLICY)) in self._losable:
                self._allowed[claim["metadata"]["uid"]] = self._world.clock()
        for node in self._store.all_of(NODES):
            state = (node["metadata"].get("labels") or {}).get(names.of_driver(DRIVER, names.EVACUATION_STATE))
            asked = any(taint["key"] == names.EVACUATE_TAINT for taint in node["spec"].get("taints") or ())
            if (asked or note(node, names.DRAIN_INTENT)) and state in ("InProgress", "Blocked"):
                self._asked[node["metadata"]["name"]] = self._world.clock()

    def unasked_for(self, node: str) -> float:
        """For how many seconds nobody has asked for it to be emptied; 0: somebody does."""
        self.sample()
        return self._world.clock() - self._asked.get(node, float("-inf"))

    def node_read(self, sender: str, name: str) -> None:
        """That sidecar asks for that Node at this moment."""
        if self._store.find(NODES, name) is None:
            self._missed.add((sender, name))
        else:
            self._missed.discard((sender, name))

    def driver_deleted(self, sender: str, handle: str) -> None:
        """The driver of that node was asked to delete a volume, and has said yes."""
        volumes = self._store.all_of(VOLUMES)
        volume = next((item for item in volumes if (item["spec"].get("csi") or {}).get("volumeHandle") == handle), None)
        if volume is not None and self.machine_of(volume) not in ("", sender):
            self._tell(volume, self._volume_touched(volume, sender))

    # --- requests -------------------------------------------------------------------------------------------------------

    def _on_post(self, resource: Resource, name: str, subresource: str, body: Mapping[str, Any], *, namespace: str = "") -> Any:
        doing = partial(self._post, resource, name, subresource, body, namespace=namespace)
        pod = self._store.find(PODS, name, namespace)
        if subresource != "eviction" or not SENDER.get():
            return doing()
        if self._world.plan.theme == "failover":
            return self._on_failover("eviction", PODS, pod, body, doing)
        self.evictions += 1
        options = body.get("deleteOptions") or {}
        if pod is None or not _is_hit(options, pod):
            return doing()
        wrong = [("wrong eviction", text) for text in self._wrong_eviction(options, pod)]
        if self._world.plan.theme != "maintenance" and pod["spec"].get("nodeName"):  # who has none is away already
            wrong += self._world.replicas.faults(pod)
        answer = self._dying(doing)
        self._tell(pod, wrong)
        self._world.transcript.tell(SENDER.get(), f"evicted {name}")
        self._world.replicas.evicted(pod)
        self._evicted.add(pod["metadata"]["uid"])
        return answer

    def _on_delete(self, resource: Resource, name: str, *, namespace: str = "", options: Options | None = None) -> Any:
        doing = partial(self._delete, resource, name, namespace=namespace, options=options)
        found, sender, given = self._store.find(resource, name, namespace), SENDER.get(), options or Options()
        if found is None or not sender or given.dry_run:
            return doing()
        if self._world.plan.theme == "failover":
            return self._on_failover("delete", resource, found, given, doing)
        machine = self.machine_of(found if resource == VOLUMES else self.volume_of(found)) if resource in (CLAIMS, VOLUMES) else ""
        if resource == CLAIMS and not found["metadata"].get("deletionTimestamp"):
            is_own = machine == sender or (not machine and bool(note(found, names.REPROVISIONED_BY)))
            self.deletions += is_own
            judge = self._own_claim_deleted if is_own else self._lost_claim_deleted
            return self._effect(found, lambda: [*_unguarded(given, found), *judge(found, sender)], doing, other=not is_own)
        if resource == VOLUMES and machine not in ("", sender):
            return self._effect(found, lambda: self._volume_touched(found, sender), doing)
        if resource == CAPACITIES:
            node = (found["metadata"].get("labels") or {}).get(names.CAPACITY_MANAGER_LABEL, "").removeprefix(_MANAGER)
            if node != sender and self._store.find(NODES, node) is not None and not self._world.is_new(NODES, node):
                self._tell(found, [(TOUCHED, f"it is the capacity of {node}, which is there")])
            if given.uid != found["metadata"]["uid"]:
                self._tell(found, [(UNGUARDED, "its deletion does not say its uid")])
        if resource in (PODS, SNAPSHOT_CONTENTS):
            self._tell(found, [(KEPT_GOES, f"a sidecar deletes no {resource}")])
        return doing()

    def _on_patch(self, resource: Resource, name: str, patch: Any, *, namespace: str = "", **rest: Any) -> Any:
        doing = partial(self._patch, resource, name, patch, namespace=namespace, **rest)
        found, sender = self._store.find(resource, name, namespace), SENDER.get()
        if found is not None and sender and resource in (NODES, CLAIMS, VOLUMES):
            self._tell(found, _unguarded_patch(patch))
        if sender and resource == NODES and self._world.plan.theme == "failover":
            return self._on_failover("patch", NODES, found, patch, doing)
        meta = patch.get("metadata") or {} if isinstance(patch, dict) else {}
        if found is not None and sender:
            if resource == VOLUMES and "finalizers" in meta and self.machine_of(found) not in ("", sender):
                return self._effect(found, lambda: self._volume_touched(found, sender), doing)
            if resource == CLAIMS and (meta.get("annotations") or {}).get(names.LOST_WITH):
                return self._effect(found, lambda: self._claim_touched(found, sender), doing)
        return doing()

    def _on_failover(self, what: str, resource: Resource, found: Json | None, given: Any, doing: Callable[[], Any]) -> Any:
        wrong = self._world.failed_over.wrong(what, SENDER.get(), resource, found, given) if found is not None else []
        answer = self._dying(doing) if found is not None and resource in (PODS, ATTACHMENTS) else doing()
        self._tell(found or {}, wrong)
        return answer

    def _effect(self, found: Json, judge: Callable[[], list[tuple[str, str]]], doing: Callable[[], Any], *, other: bool = True) -> Any:
        """`other`: on what another machine has left."""
        self.touches += other
        wrong = judge()
        answer = self._dying(doing) if other else doing()
        whose = ", which another machine had" if other else ""
        self._world.transcript.tell(SENDER.get(), f"has written on {found['metadata']['name']}{whose}")
        self._tell(found, wrong)
        return answer

    def _dying(self, doing: Callable[[], Any]) -> Any:
        """The sender dies `before` it is carried out, `after` that, or not."""
        node, deaths = self._world.nodes.get(SENDER.get()), self._world.at_effects
        how = deaths.pop(0) if node and deaths and deaths[0] != "back" else ""
        if node and how == "before":
            node.kill()
        answer = doing()
        if node and how == "after":
            node.kill()
        return answer

    def _tell(self, found: Json, wrong: Iterable[tuple[str, str]]) -> None:
        for kind, text in wrong:
            self._world.found(kind, f"{found['metadata']['name']}, by {SENDER.get() or 'nobody'}: {text}")

    # --- an eviction -----------------------------------------------------------------------------------------------------

    def _wrong_eviction(self, options: Mapping[str, Any], pod: Json) -> Iterator[str]:
        """It hits the judged pod, of its own node, while somebody asks for that; one after the other; and no data that stays. In a
        declared maintenance it is for what was declared."""
        only, node = options.get("preconditions") or {}, pod["spec"].get("nodeName")
        if not only.get("uid"):
            yield "it names no uid"
        if node not in (None, SENDER.get()):
            yield f"it is on {node}"
        if self._world.plan.theme == "maintenance":
            yield from self._world.maintained.wrong_eviction(SENDER.get(), pod) if node else ()
            return
        if "gracePeriodSeconds" in options:
            yield "it takes the pod's grace period"
        if self.unasked_for(SENDER.get()) > self._world.late:
            yield "nobody asks for its node to be emptied"
        if node:
            there = {each["metadata"]["uid"]: each["metadata"] for each in self._store.all_of(PODS) if each["spec"].get("nodeName") == node}
            others = [there[uid] for uid in self._evicted & there.keys() - {pod["metadata"]["uid"]}]
            yield from (f"{meta['name']} is leaving" for meta in others if meta.get("deletionTimestamp"))
        for item in pod["spec"].get("volumes") or ():  # those that were not made for it alone
            name = (item.get("persistentVolumeClaim") or {}).get("claimName", "")
            claim = self._store.find(CLAIMS, name, pod["metadata"]["namespace"])
            allowed = self._allowed.get(claim["metadata"]["uid"], float("-inf")) if claim else float("inf")
            if self._world.clock() - allowed > _HEEDED + self._world.slack:
                yield f"its claim {name} may not be lost"

    # --- a claim that is made anew ------------------------------------------------------------------------------------------

    def _own_claim_deleted(self, claim: Json, sender: str) -> list[tuple[str, str]]:
        return [(CLAIM_DELETED, text) for text in self._wrong_deletion(claim, sender)]

    def _wrong_deletion(self, claim: Json, sender: str) -> Iterator[str]:
        """Its owner has asked for just this, the node is to be retired, its replica will be made again, and every other one is there."""
        node, volume, (workload, ordinal) = self._store.find(NODES, sender), self.volume_of(claim), self._maker(claim)
        mark = note(claim, names.REPROVISIONED_BY)
        users = [pod for pod in self.users(claim) if not self._world.is_new(PODS, pod["metadata"]["name"])]
        yield from (f"a pod on {user['spec']['nodeName']} uses it" for user in users)
        if node is None or mark != f"{sender}/{node['metadata']['uid']}":
            yield f"its mark is {mark}"
        policy = said(self._world.truth.look(), volume, claim, RETIRE).policy if volume else ""
        if policy != "Reprovision" or ALLOW not in self._world.plan.args:
            yield f"its policy is {policy}, and flags allow {'it' if ALLOW in self._world.plan.args else 'nothing'}"
        if self.unasked_for(sender) > self._world.late:
            yield "nobody asks for its node to be retired"
        if workload is None:
            yield "no StatefulSet makes it again"
            return
        pause = next((float(word.partition("=")[2].rstrip("s")) for word in self._world.plan.args if word.startswith(PAUSE)), 1800.0)
        there = self._world.replicas.pods_of(workload)
        for other in (each for each in objects.ordinals(workload) if each != ordinal):
            seconds, by_us = self._world.replicas.away(workload["metadata"]["uid"], other)
            where = (there.get(other) or {}).get("spec", {}).get("nodeName", "")
            if by_us or seconds > self._world.late or where == sender:
                yield f"replica {other} is on {where or 'no node'}, and has not been ready for {seconds:.1f} s"
            elif (copied := self._world.replicas.whole_for(workload["metadata"]["uid"], other)) < pause - _WHOLE:
                yield f"replica {other} is ready since {copied:.1f} s, and may not be in sync"

    def _maker(self, claim: Json) -> tuple[Json | None, int]:
        """The set that makes it again, and which ordinal it is for. Replicas that were wanted until a moment ago count."""
        meta = claim["metadata"]
        for workload in self._store.all_of(STATEFUL_SETS):
            if workload["metadata"].get("deletionTimestamp") or workload["metadata"]["namespace"] != meta["namespace"]:
                continue
            lately = self._world.wanted.get(workload["metadata"]["name"], ())
            most = max([0, *(count for until, count in lately if self._world.clock() - until <= self._world.late)])
            for ordinal in {*objects.ordinals(workload), *range(most)}:
                if any(made["metadata"]["name"] == meta["name"] for made in objects.claims_for(workload, ordinal).values()):
                    return workload, ordinal
        return None, -1

    # --- what a lost machine has left -------------------------------------------------------------------------------------------

    def _lost_claim_deleted(self, claim: Json, sender: str) -> list[tuple[str, str]]:
        users = [pod["metadata"]["name"] for pod in self.users(claim)]
        found = [(CLAIM_DELETED, f"pod {name} with a node uses it") for name in users if not self._world.is_new(PODS, name)]
        if not note(claim, names.LOST_WITH):
            found.append((CLAIM_DELETED, "it does not say with which machine it was lost"))
        if not self.is_made_again(claim):
            found.append((CLAIM_DELETED, "nobody makes it again"))
        return found + self._claim_touched(claim, sender)

    def is_made_again(self, claim: Json) -> bool:
        return self._maker(claim)[0] is not None

    def _claim_touched(self, claim: Json, sender: str) -> list[tuple[str, str]]:
        volume = self.volume_of(claim)
        return self._of_machine(volume, sender) if volume is not None else [(CLAIM_DELETED, "its volume is not there")]

    def _volume_touched(self, volume: Json, sender: str) -> list[tuple[str, str]]:
        policy, phase = volume["spec"].get("persistentVolumeReclaimPolicy"), (volume.get("status") or {}).get("phase")
        kept = [] if (policy, phase) == ("Delete", "Released") else [(KEPT_GOES, f"it is {phase}, and its policy {policy}")]
        return kept + self._of_machine(volume, sender)

    def _of_machine(self, volume: Json, sender: str) -> list[tuple[str, str]]:
        """That machine is gone, somebody has said that its disks do not come back, and the sidecar has just looked for its Node."""
        if not (name := self.machine_of(volume)):
            return []  # its bytes are gone: nothing is lost with it
        asked, lost = (sender, name) in self._missed, self._world.lost.get(name)
        self._missed.discard((sender, name))
        if lost is None or any(self._store.find(each, name) for each in (NODES, CSI_NODES)):
            came = self._world.is_new(NODES, name) or self._world.is_new(CSI_NODES, name)  # while the request was on its way
            return [] if came else [(TOUCHED, f"it is on {name}, which is there")]
        if not asked and not self._world.strays:
            return [("not looked for anew", f"it was on {name}, and nobody has looked for that node since the last such request")]
        if CLEANUP not in self._world.plan.args:
            return [(NO_EVIDENCE, f"it was on {name}, and the policy is Orphan")]
        return [] if lost.given_up else [(NO_EVIDENCE, f"it was on {name}, and nobody has said that its disks do not come back")]

    # --- the truth ------------------------------------------------------------------------------------------------------

    def machine_of(self, volume: Json | None) -> str:
        """The name of the machine that has the bytes, whether it is there or lost; empty: none has."""
        handle = ((volume or {}).get("spec", {}).get("csi") or {}).get("volumeHandle")
        everybody = {**{name: lost.node for name, lost in self._world.lost.items()}, **self._world.nodes}
        return next((name for name, node in everybody.items() if any(held.id == handle for held in node.driver.volumes())), "")

    def volume_of(self, claim: Json) -> Json | None:
        return self._store.find(VOLUMES, claim["spec"].get("volumeName") or "")

    def users(self, claim: Json) -> list[Json]:
        return [pod for pod in self._store.all_of(PODS) if pod["spec"].get("nodeName") and full_name(claim) in claims_of(pod)]


def _unguarded(given: Options, claim: Json) -> list[tuple[str, str]]:
    meta = claim["metadata"]
    whole = (given.uid, given.resource_version) == (meta["uid"], meta["resourceVersion"])
    return [] if whole else [(UNGUARDED, "its deletion does not say its uid and which version of it was looked at")]


def _unguarded_patch(patch: Any) -> list[tuple[str, str]]:
    """Of an object that others may replace or write too: the machine that is meant, and of a list, which is one value, the version."""
    if isinstance(patch, list):
        named = {item["path"].rpartition("/")[2] for item in patch if item["op"] == "test"}
        lists = any(item["path"].startswith("/spec/taints") for item in patch)
    else:
        named, lists = {*(patch.get("metadata") or {})}, "taints" in (patch.get("spec") or {})
    if "resourceVersion" in named or ("uid" in named and not lists):
        return []
    return [(UNGUARDED, f"a patch does not say of which object or version: {json.dumps(patch)[:300]}")]


def _is_hit(options: Mapping[str, Any], pod: Json) -> bool:
    """If no budget forbids it."""
    only, meta = options.get("preconditions") or {}, pod["metadata"]
    return only.get("uid") in (None, meta["uid"]) and only.get("resourceVersion") in (None, meta["resourceVersion"])
