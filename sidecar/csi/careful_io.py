"""Keeps a call that has killed the driver from being made again at once, by whatever room. When it may be made again: `losses`."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from sidecar.csi.api import NOTHING, CapacityAnswer, CapacityQuery, CreatedVolume, CreateRequest, Driver, DriverInfo
from sidecar.csi.losses import ALONE, Call, Losses, creation, deletion
from sidecar.csi.outcome import Code, Lost, NotSent

T = TypeVar("T")

# Seconds until a call that has to be made alone is tried again while another one is.
_IN_LINE: Final = 1.0


class CarefulDriver:
    """`csi.api.Driver`, around another one."""

    def __init__(self, driver: Driver, losses: Losses, *, clock: Callable[[], float]) -> None:
        self._driver = driver
        self._losses = losses
        self._clock = clock
        self._alone = False

    @property
    def info(self) -> DriverInfo:
        return self._driver.info

    async def create_volume(self, request: CreateRequest, *, secrets: Mapping[str, str] = NOTHING) -> CreatedVolume:
        return await self._call(creation(request.name), lambda: self._driver.create_volume(request, secrets=secrets))

    async def delete_volume(self, volume_id: str, *, secrets: Mapping[str, str] = NOTHING) -> None:
        await self._call(deletion(volume_id), lambda: self._driver.delete_volume(volume_id, secrets=secrets))

    async def get_capacity(self, query: CapacityQuery) -> CapacityAnswer:
        key = frozenset(query.parameters.items()), query.segment, query.capabilities
        return await self._call(("GetCapacity", key), lambda: self._driver.get_capacity(query))

    async def list_volumes(self) -> Mapping[str, bool]:
        return await self._call(("ListVolumes", ""), self._driver.list_volumes)

    async def _call(self, call: Call, make: Callable[[], Awaitable[T]]) -> T:
        loss = self._losses.of(call)
        if loss.until > self._clock():
            raise NotSent(Code.UNAVAILABLE, f"{call[0]} was not sent: {loss}, so it is tried in {loss.until - self._clock():.0f} s")
        if loss.count < ALONE:
            return await self._made(call, make)
        if self._alone:
            self._losses.shifted(call, self._clock() + _IN_LINE)
            raise NotSent(Code.UNAVAILABLE, f"{call[0]} was not sent: {loss}, so it is tried after another call of which that is true")
        self._alone = True
        try:
            return await self._made(call, make)
        finally:
            self._alone = False

    async def _made(self, call: Call, make: Callable[[], Awaitable[T]]) -> T:
        try:
            answer = await make()
        except Lost as error:
            loss = self._losses.lost(call, self._clock())
            raise Lost(error.code, f"{error.message} ({loss})" if loss.count > 1 else error.message) from None
        self._losses.succeeded(call)
        return answer
