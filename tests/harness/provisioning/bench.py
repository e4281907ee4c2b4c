"""The controller of provisioning between scripted doors: its caches are filled and its clock is moved by hand."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from sidecar.csi.outcome import Code, DriverError
from sidecar.kube.api import Change
from sidecar.kube.store import Store
from sidecar.local.caches import Caches, cloned_from
from sidecar.local.here import Here
from sidecar.model.objects import Claim, Class, Volume
from sidecar.model.standing import OPEN, Standing
from sidecar.observe.decisions import Decisions
from sidecar.observe.metrics import Metrics
from sidecar.ownership.promises import Promise
from sidecar.ownership.reserved_space import ReservedSpace
from sidecar.provisioning.controller import Provisioner
from sidecar.provisioning.decisions import Create
from sidecar.provisioning.progress_table import ProgressTable
from sidecar.provisioning.rules import decide
from sidecar.provisioning.view import ClaimView
from sidecar.provisioning.watches import ProvisioningWatches
from sidecar.rights.rights import FinalizerWrites
from tests.harness import samples
from tests.harness.doors import ScriptedDriver, ScriptedKube, Told, tools

T = TypeVar("T")
UID = "testid"


def _whose(volume: Volume) -> list[str]:
    return [f"{volume.claim.namespace}/{volume.claim.name}"] if volume.claim else []


@dataclass
class Bench:
    """A provisioner between scripted doors, with hands on its caches and clock."""

    driver: ScriptedDriver = field(default_factory=ScriptedDriver)
    kube: ScriptedKube = field(default_factory=ScriptedKube)
    told: Told = field(default_factory=Told)
    now: float = 100.0
    changes: list[tuple[str, bool]] = field(default_factory=list)
    """What the room said of free space: of which class, and whether the volume has a place of its own."""
    attachments_known: bool = True
    standing: Standing = OPEN
    finalizers: FinalizerWrites = FinalizerWrites.BY_PATCH
    forbidden: int = 0
    """How often the room said that a finalizer may not be written."""
    dry_run: bool = False
    watched: str = ""
    """The resourceVersion to which the watch of claims has come."""
    snapshots_protected: list[float] = field(default_factory=list)
    """When the room said that it had protected one."""

    def __post_init__(self) -> None:
        self.until: float | None = self.now
        self.table = ProgressTable()
        self.metrics = Metrics("test")
        self.decisions = Decisions()
        claims: Store[Claim] = Store({"node": lambda item: (item.selected_node,), "source": cloned_from})
        self.space = ReservedSpace(classes=lambda: {item.name: item for item in self.caches.classes.values()})
        changed = self.space.changed

        def overheard(class_name: str, *, placed: bool) -> None:
            self.changes.append((class_name, placed))
            changed(class_name, placed=placed)

        self.space.changed = overheard  # type: ignore[method-assign]
        volumes = Store({"claim": _whose, "handle": lambda item: (item.handle,)})
        self.caches = Caches(claims, Store[Class](), volumes, Store({"volume": lambda item: (item.volume,)}))
        self.room = Provisioner(
            tools(
                self.kube,
                self.driver,
                recorder=self.told,
                metrics=self.metrics,
                decisions=self.decisions,
                clock=lambda: self.now,
                dry_run=self.dry_run,
            ),
            here=lambda: self.look_around(),  # noqa: PLW0108 - a test may have another
            caches=self.caches,
            space=self.space,
            table=self.table,
            attachments_known=lambda: self.attachments_known,
            watched=lambda: self.watched,
            standing=lambda: self.standing,
            finalizers=lambda: self.finalizers,
            on_forbidden=self._was_forbidden,
            snapshot_protected=lambda: self.snapshots_protected.append(self.now),
        )

    def _was_forbidden(self) -> None:
        self.forbidden += 1

    def look_around(self) -> Here:
        return samples.here(self.driver.info)

    def see(self, *, claim: Claim | None = None, class_: Class | None = None, volume: Volume | None = None) -> "Bench":
        if claim is not None:
            self.caches.claims.apply(Change(claim.uid, None, claim))
        if class_ is not None:
            self.caches.classes.apply(Change(class_.name, None, class_))
        if volume is not None:
            self.caches.volumes.apply(Change(volume.name, None, volume))
            self.kube.objects.setdefault(("persistentvolumes", volume.name), samples.volume_json())
        return self

    def forget_claim(self) -> None:
        self.caches.claims.apply(Change(UID, None, None))

    def promises(self) -> dict[str, Promise]:
        return dict(self.space.promises.by_claim)

    def claim(self) -> float | None:
        self.until = run(self.room.handle_claim(UID))
        return self.until

    def claim_when_due(self) -> float | None:
        """The look that the one before it has asked for."""
        assert self.until is not None
        self.now = max(self.now, self.until)
        return self.claim()

    def volume(self) -> float | None:
        self.until = run(self.room.removal.handle("test-testi"))
        return self.until

    def volume_when_due(self) -> float | None:
        assert self.until is not None
        self.now = max(self.now, self.until)
        return self.volume()

    def watches(self, **of_interest: Any) -> ProvisioningWatches:
        """What the room watches; whatever a test does not name leads nowhere."""
        nowhere: dict[str, Any] = {
            "concerns": lambda uid: False,
            "volume_gone": lambda uid: None,
            "volume_seen": lambda name: None,
            "volumes_listed": lambda: None,
            "volume_not_kept": lambda obj: None,
            "promise_changed": lambda class_name: None,
            "claim_seen": lambda obj: None,
            "claim_selectors": (),
            "may_have_begun": lambda uid: False,
            "wake_claim": lambda uid: None,
            "wake_volume": lambda name: None,
            "wake_volume_at": lambda name, at: None,
        }
        return ProvisioningWatches(here=self.look_around, caches=self.caches, **(nowhere | of_interest))

    def value(self, name: str) -> float:
        page = self.metrics.render()[0].decode()
        return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(name))


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


def late(**doors: Any) -> Bench:
    return Bench(**doors).see(claim=samples.claim(selected="foo"), class_=samples.class_())


def immediate(**doors: Any) -> Bench:
    return Bench(**doors).see(claim=samples.claim(), class_=samples.class_(volumeBindingMode="Immediate"))


def rpc(code: Code, text: str = "text") -> DriverError:
    return DriverError(code, text)


def released(**doors: Any) -> Bench:
    """A volume whose claim is gone and that is to be deleted."""
    return Bench(**doors).see(volume=samples.volume(), class_=samples.class_())


# --- without a controller: the view of a claim as the rules see it ---


def view(**changes: Any) -> ClaimView:
    base = ClaimView(now=100.0, here=samples.here(), chance=0.5, claim=samples.claim(selected="foo"), class_=samples.class_())
    return replace(base, **changes)


def create(**changes: Any) -> Create:
    decision = decide(view(**changes))
    assert isinstance(decision, Create), decision
    return decision
