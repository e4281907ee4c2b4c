"""Which claims are traced: the samplers of the OpenTelemetry specification, for parents that tenants write."""

from dataclasses import dataclass
from typing import Final

from sidecar.engine.limiter import TokenBucket
from sidecar.tracing.parents import Parent

# What an annotation may ask for beyond what the sampler takes by itself, on one node.
_ASKED_IN_A_SECOND: Final = 1 / 60
_ASKED_AT_ONCE: Final = 20
_RANDOM_DIGITS: Final = 14
"""The 56 bits that the specification draws its chance from, here those of the UID: a tenant cannot choose them."""


@dataclass(frozen=True, slots=True)
class Sampler:
    """`ratio`: of claims without a parent. `by_parent`: whether the flag of a parent decides."""

    ratio: float = 1.0
    by_parent: bool = True

    def takes(self, own_trace_id: str) -> bool:
        return int(own_trace_id[-_RANDOM_DIGITS:], 16) < self.ratio * 16**_RANDOM_DIGITS


DEFAULT: Final = Sampler()
NAMED: Final = {
    "always_on": (1.0, False),
    "always_off": (0.0, False),
    "traceidratio": (None, False),
    "parentbased_always_on": (1.0, True),
    "parentbased_always_off": (0.0, True),
    "parentbased_traceidratio": (None, True),
}
"""With the ratio, None where OTEL_TRACES_SAMPLER_ARG says it, and whether a parent decides."""


class Sampling:
    """Decides for one claim after the other. What parents ask for beyond the ratio is limited by time."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._asked = TokenBucket(_ASKED_IN_A_SECOND, _ASKED_AT_ONCE)

    def takes(self, own_trace_id: str, parent: Parent | None, *, now: float) -> bool:
        by_itself = self._sampler.takes(own_trace_id)
        if parent is None or not self._sampler.by_parent:
            return by_itself
        return parent.sampled and (by_itself or self._asked.allow(now))
