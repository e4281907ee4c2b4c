"""Reads the volumes that claims of this node are bound to and that no list and no watch has shown yet.

Which node a claim is for, and to which volume it is bound, anybody may have written who may write the claim.
"""

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Final

from sidecar.drain.facts.watched import TRUSTED
from sidecar.kube.api import VOLUMES, KubeApi, records
from sidecar.kube.errors import ApiError, Forbidden, NotFound
from sidecar.model.objects import Claim, Volume

# Of more volumes a list costs less.
_MANY: Final = 50


class UnseenVolumes:
    """`concerns`: a volume that exists may be here, and be that of the claim. `clock`: of a process that asks again and again."""

    def __init__(
        self, kube: KubeApi, *, concerns: Callable[[Claim, Volume], bool] = lambda *_: True, clock: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._kube = kube
        self._concerns = concerns
        self._clock = clock
        self._nothing: dict[tuple[str, str], float] = {}
        """By uid of a claim and the volume that it names: until when it need not be asked again that this is none of ours."""

    async def ignorance_of(self, claims: Iterable[Claim], *, forbidden: MutableMapping[str, str]) -> list[str]:
        """One sentence for each that exists or could not be read. A volume that is gone is not counted: its claim goes on naming it, and
        the node could never be retired. `forbidden`, as `Asking.forbidden`, gets those that may not be read."""
        now, named = self._clock(), {(claim.uid, claim.volume_name): claim for claim in claims}
        self._nothing = {key: until for key, until in self._nothing.items() if key in named and now < until}
        left = sorted((claim for key, claim in named.items() if key not in self._nothing), key=lambda claim: claim.full_name)
        try:
            listed = await self._listed(left) if len(left) > _MANY else None
        except ApiError as error:
            return [f"{VOLUMES}: {error}"]
        found = []
        for claim in left:
            what = f"volume {claim.volume_name}"
            try:
                volume = listed.get(claim.volume_name) if listed is not None else await self._read(claim.volume_name)
            except ApiError as error:
                found.append(f"{what}: {error}")
                if isinstance(error, Forbidden):
                    forbidden[what] = str(error)
                continue
            if volume is not None and self._concerns(claim, volume):
                found.append(f"claim {claim.full_name} is bound to {what}, which exists and has not been seen yet")
            else:
                self._nothing[claim.uid, claim.volume_name] = now + TRUSTED
        return found

    async def _read(self, name: str) -> Volume | None:
        try:
            return Volume.of(await self._kube.get(VOLUMES, name))
        except NotFound:
            return None

    async def _listed(self, claims: Sequence[Claim]) -> Mapping[str, Volume]:
        wanted = {claim.volume_name for claim in claims}
        found = records(self._kube, VOLUMES, lambda obj: Volume.of(obj) if obj["metadata"]["name"] in wanted else None)
        return {volume.name: volume async for volume in found}
