"""The page as dashboards and alerts that were made for upstream, a Go program, expect it."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector


class AsGoWritesIt(Collector):
    """The registry's metrics as Go's client writes them: `le="1"` and not `le="1.0"`, no `_created` series, no family without a series.

    A dashboard's query for `le="1"` does not match `le="1.0"`. The Python client can omit `_created` too, but only for the whole process.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            created = f"{family.name}_created"
            shown = Metric(family.name, family.documentation, family.type, family.unit)
            for sample in family.samples:
                if "le" in sample.labels:
                    sample = sample._replace(labels={**sample.labels, "le": sample.labels["le"].removesuffix(".0")})
                if sample.name != created:
                    shown.samples.append(sample)
            if shown.samples:
                yield shown
