"""Holds what sidecars do to pods, attachments and taints of other nodes against the truth, at the moment at which a request was sent.

A proof is momentary: what was so then counts, and not what it is when the request lands. Whoever's reader hangs may go by what is 12 s old.
"""

import contextvars
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from hack.sim.cluster.deletion import Options
from hack.sim.stand_ins import claims_of
from hack.sim.stand_ins.node_controllers import OUT_OF_SERVICE, is_ready, taint
from hack.sim.world.node import DRIVER, NAMESPACE
from sidecar.kube.api import ATTACHMENTS, CLAIMS, LEASES, NAMESPACES, NODES, PODS, VOLUMES, Resource
from sidecar.model import names, timestamps
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.world.world import World

HEALTHY: Final = "healthy writer touched"
UNASKED: Final = "exempt touched"
FORCED: Final = "wrongly forced"
TOO_MUCH: Final = "too much at once"
OTHERS: Final = "others act"
WRONG_TAINT: Final = "wrong taint"

KEY: Final = names.of_driver(DRIVER, names.STORAGE_LOST)
_OLD, _FRESH, _READ, _SAME = 12.5, 1.0, 7.0, 10.5
"""Seconds: what counts as known of storage at most, and usually; and what a write is decided on was asked for no longer ago."""


@dataclass(slots=True)
class Sent:
    """What was so when a request left."""

    at: float
    since: Mapping[Any, float]


SENT: Final[contextvars.ContextVar[Sent | None]] = contextvars.ContextVar("sent", default=None)


@dataclass(slots=True)
class FailedOver:
    world: "World"
    since: dict[Any, float] = field(default_factory=dict)
    """What is so, and since when without a break."""
    acts: list[tuple[float, str, str, str, str]] = field(default_factory=list)
    """When, what, victim, claim's key, pod's uid."""
    began: dict[str, float] = field(default_factory=dict)
    """By node: when its sidecar began."""
    _lives: dict[str, int] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    def send(self) -> None:
        self.sample()
        SENT.set(Sent(self.world.clock(), self.since))

    def sample(self) -> None:
        """Each half second, and before each request of a sidecar."""
        world, store, now = self.world, self.world.cluster.store, self.world.clock()
        facts: set[Any] = {("writes", *pair) for pair in world.machines.could_write()}
        nodes = [node for node in store.all_of(NODES) if node["metadata"]["name"] in world.nodes]
        for node in nodes:
            name = node["metadata"]["name"]
            facts.add(("ready" if is_ready(node) else "lost", name))
            facts |= {("cordoned", name)} if node["spec"].get("unschedulable") else set()
            facts |= {("out of service", name)} if taint(node, OUT_OF_SERVICE) else set()
            lease = store.find(LEASES, name, "kube-node-lease")
            facts.add(("sign", name, ((lease or {}).get("spec") or {}).get("renewTime")))
            if (life := world.nodes[name].lives) != self._lives.get(name):
                self._lives[name], self.began[name] = life, now
        lost = sum(not is_ready(node) for node in nodes)
        facts |= {("frozen",)} if lost >= 3 and lost >= 0.55 * len(nodes) else set()
        for resource in (PODS, CLAIMS, NAMESPACES):
            for obj in store.all_of(resource):
                if word := (obj["metadata"].get("annotations") or {}).get(names.FAILOVER):
                    kind = word if word == "ForceOnExclusion" else "Ignore"
                    facts.add((kind, obj["kind"], obj["metadata"]["name"]))
        lease = store.find(LEASES, names.failover(DRIVER), NAMESPACE)
        facts.add(("holder", ((lease or {}).get("spec") or {}).get("holderIdentity")))
        self.since = {fact: self.since.get(fact, now) for fact in facts}
        for handle in world.machines.storage.resources:
            writers = [name for name in world.nodes if ("writes", name, handle) in facts]
            if len(writers) > 1:
                self.second_writer(handle, *writers)

    def second_writer(self, handle: str, *nodes: str) -> None:
        if handle not in self._told:
            self._told.add(handle)
            self.world.found("two writers", f"{' and '.join(sorted(nodes))} may write to {handle}")

    # --- a write of a sidecar --------------------------------------------------------------------------------------------------

    def wrong(self, what: str, sender: str, resource: Resource, found: Json, given: Any) -> list[tuple[str, str]]:
        """`found`: what it hits; `given`: its options, or the patch."""
        return [(kind, f"{what}: {text}") for kind, text in self._wrong(what, sender, resource, found, given)]

    def _wrong(self, what: str, sender: str, resource: Resource, found: Json, given: Any) -> Iterator[tuple[str, str]]:
        spec, sent = found.get("spec") or {}, SENT.get() or Sent(self.world.clock(), self.since)
        if resource == NODES:
            yield from self._of_taints(sender, found, given, sent)
            return
        if resource not in (PODS, ATTACHMENTS):
            return
        uid = given.uid if isinstance(given, Options) else ((given.get("deleteOptions") or {}).get("preconditions") or {}).get("uid")
        if uid and uid != found["metadata"]["uid"]:
            return  # it is refused
        if not uid:
            yield FORCED, "it names no uid"
        node = spec.get("nodeName") or ""
        if "--failover=Act" not in self.world.plan.args:
            yield UNASKED, "it is only observed"
        if resource == PODS:
            claims, handles = claims_of(found), self.world.machines.handles_of(found)
        else:
            volume = self.world.cluster.store.find(VOLUMES, spec["source"]["persistentVolumeName"]) or found
            handles, ref = [volume["spec"]["csi"]["volumeHandle"]], volume["spec"]["claimRef"]
            claims = [f"{ref['namespace']}/{ref['name']}"]
            for pod in self.world.cluster.store.all_of(PODS):
                is_new = sent.at - self.world.made_at(PODS, pod["metadata"]["name"]) < _READ
                if pod["spec"].get("nodeName") == node and claims[0] in claims_of(pod) and not is_new:
                    yield "attachment before its pod", f"{pod['metadata']['name']} is there"
        yield from self._exempt(found, claims, sent, resource == PODS)
        if node == sender:
            if all(self._for(sent, "writes", node, handle) > _OLD for handle in handles):
                yield HEALTHY, f"{node} can write to all its volumes"
            return
        for handle in handles:
            if (seconds := self._for(sent, "writes", node, handle)) > self._known_for(sender, handle):
                yield HEALTHY, f"{node} can write to {handle}, for {seconds:.1f} s"
        if what == "delete" and resource == PODS:
            word = any(self._for(sent, "ForceOnExclusion", kind, name) > 0.0 for kind, name in self._speakers(found, claims))
            if self._for(sent, "ready", node) > _READ and not (word and self._silent(sent, node) > 8.0):
                yield FORCED, f"{node} is Ready"
        yield from self._too_much(what, sender, node, claims[0] if claims else "", found, sent, resource == PODS)

    def _of_taints(self, sender: str, node: Json, patch: Any, sent: Sent) -> Iterator[tuple[str, str]]:
        name, spec = node["metadata"]["name"], (patch.get("spec") or {}) if isinstance(patch, dict) else {}
        if "taints" not in spec:
            return
        before = {each["key"]: each for each in node["spec"].get("taints") or ()}
        after = {each["key"]: each for each in spec["taints"] or ()}
        if (patch.get("metadata") or {}).get("resourceVersion") not in (None, node["metadata"]["resourceVersion"]):
            return  # it is refused
        if {key for key in before if before[key] != after.get(key)} - {KEY} or after.keys() - before.keys() - {KEY}:
            yield WRONG_TAINT, "it changes others' taints"
        if KEY in before and KEY not in after and sender != name:
            yield WRONG_TAINT, f"it is not {sender}'s to take off"
        if KEY in after and KEY not in before and sender != name:
            ours = [handle for fact in sent.since if fact[:2] == ("writes", name) for handle in fact[2:]]
            healthy = [h for h in self.world.machines.storage.resources if h in ours and self._for(sent, "writes", name, h) > _OLD]
            copies = [one for one in self.world.machines.storage.resources.values() if name in one.copies]
            if (self._for(sent, "ready", name) > _READ and self._silent(sent, name) < 8.0) or (copies and len(healthy) == len(copies)):
                yield WRONG_TAINT, f"{name} is Ready, or can write to {', '.join(healthy)}"

    def _exempt(self, found: Json, claims: Iterable[str], sent: Sent, is_pod: bool) -> Iterator[tuple[str, str]]:
        for kind, name in self._speakers(found if is_pod else None, claims):
            if self._for(sent, "Ignore", kind, name) > _READ + self.world.late:
                yield UNASKED, f"{kind} {name} says Ignore"
        if is_pod and not any(owner.get("controller") for owner in found["metadata"].get("ownerReferences") or ()):
            yield UNASKED, "nobody makes it again"
        if "spec" in found and self._for(sent, "out of service", found["spec"].get("nodeName") or "") > _READ:
            yield OTHERS, "its node is out of service"

    def _too_much(self, what: str, sender: str, node: str, claim: str, found: Json, sent: Sent, is_pod: bool) -> Iterator[tuple[str, str]]:
        # One that was bound to a dead node before that was not Ready has never run.
        has_run = is_pod and ((found.get("status") or {}).get("phase") != "Pending" or self._silent(sent, node) < 13.0)
        uid, now = found["metadata"]["uid"] if has_run else "", sent.at
        if self._for(sent, "cordoned", node) > _READ and not any(act[2] == node for act in self.acts[-5:]):
            reachable = [at for fact, at in sent.since.items() if fact[0] == "lost" and fact[1] == node]
            if self.world.failed_over.began.get(sender, 0.0) > now - 590.0 or (reachable and now - reachable[0] < 500.0):
                yield OTHERS, "its node is cordoned since before it was lost"
        if self._for(sent, "frozen") > 5.0:
            yield TOO_MUCH, "most nodes are not Ready"
        holder = next((fact[1] for fact in sent.since if fact[0] == "holder"), None)
        stored = self.world.cluster.store.find(NODES, sender)
        if not self.world.strays and stored is not None and holder != f"{stored['metadata']['uid']}/{DRIVER}":
            yield "without the Lease", f"it is {holder}'s"
        is_new = has_run and all(act[4] != uid for act in self.acts)
        if is_new and not self.world.strays and "clock jumps" not in self.world.plan.troubles:
            victims = {act[2] for act in self.acts if now - act[0] < 595.0} | {node}
            if len(victims) > 3:
                yield TOO_MUCH, f"{', '.join(sorted(victims))} are victims"
            first = {act[4]: act[0] for act in reversed(self.acts) if act[3] == claim and act[4] and now - act[0] < 1795.0}
            rounds: list[float] = []
            for at in sorted(first.values()):  # what is done within 10 s for one claim counts as one
                rounds += [at] if not rounds or at - rounds[-1] > _SAME else []
            made_at = (timestamps.to_seconds(found["metadata"]["creationTimestamp"]) or 0.0) - (self.world.wall() - self.world.clock())
            beside = bool(rounds) and now - rounds[-1] <= _SAME and made_at < rounds[-1]  # and not made in its place
            if rounds and not beside and (len(rounds) >= 2 or now - rounds[-1] < 58.0):
                yield TOO_MUCH, f"{claim} was failed over {len(rounds)} times, {now - rounds[-1]:.0f} s ago last"
        self.acts.append((now, what, node, claim, uid))

    # --- what is known ------------------------------------------------------------------------------------------------------------

    def _speakers(self, pod: Json | None, claims: Iterable[str]) -> list[tuple[str, str]]:
        named = [("PersistentVolumeClaim", claim.partition("/")[2]) for claim in claims] + [("Namespace", NAMESPACE)]
        return named + ([("Pod", pod["metadata"]["name"])] if pod is not None else [])

    @staticmethod
    def _for(sent: Sent, *fact: str) -> float:
        """For how many seconds that had been so; 0: it was not."""
        return max(sent.at - sent.since[fact], 1e-6) if fact in sent.since else 0.0

    @staticmethod
    def _silent(sent: Sent, node: str) -> float:
        """For how many seconds its kubelet's Lease had not changed."""
        return max((sent.at - at for fact, at in sent.since.items() if fact[:2] == ("sign", node)), default=0.0)

    def _known_for(self, sender: str, handle: str) -> float:
        """How old what a sidecar knows of the other side may be: its reader may hang, and a Node is read some seconds before a write."""
        if handle in self.world.machines.shared:
            return _READ
        machine = self.world.machines.all[sender]
        return _OLD if self.world.clock() - machine.reader_bad_at < 2 * _OLD else _FRESH

    # --- at rest ------------------------------------------------------------------------------------------------------------------

    def left(self) -> Iterator[tuple[str, str]]:
        """All is well for long enough: no taint, every pod writes, and nothing that was acknowledged is lost."""
        world, store = self.world, self.world.cluster.store
        yield from (("taint lingers", name) for name in world.nodes if taint(store.find(NODES, name) or {}, KEY))
        for pod in store.all_of(PODS):
            machine = world.machines.all.get(pod["spec"].get("nodeName") or "")
            if machine is None or pod["metadata"]["uid"] not in machine.processes:
                yield "not replaced", f"{pod['metadata']['name']} does not run on {pod['spec'].get('nodeName') or 'any node'}"
        for handle, texts in world.machines.acknowledged.items():
            best = max((copy.data for copy in world.machines.storage.resources[handle].copies.values()), key=len)
            if lost := [text for text in texts if text not in best]:
                yield "lost write", f"{len(lost)} of {len(texts)} writes to {handle}, {lost[0]} first"
