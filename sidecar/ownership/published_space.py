"""Which free space counts for which node: other nodes publish it by class, under the label that names the publisher."""

from collections.abc import Collection, Mapping

from sidecar.model import names
from sidecar.model.objects import Class

Published = Mapping[str, Mapping[str, int]]
"""Free bytes by class, then by that label."""


def free_of(class_name: str, nodes: Collection[str], published: Published, classes: Mapping[str, Class]) -> dict[str, int]:
    """Free bytes by node. Capacity of Immediate classes is mostly not published; then a class with equal parameters stands in."""
    of_class = published.get(class_name) or published.get(_twin(class_name, published, classes)) or {}
    by_manager = {names.capacity_manager(node): node for node in nodes}
    return {by_manager[manager]: free for manager, free in of_class.items() if manager in by_manager}


def _twin(class_name: str, published: Published, classes: Mapping[str, Class]) -> str:
    mine = classes.get(class_name)
    twins = (name for name, class_ in classes.items() if mine is not None and class_.parameters == mine.parameters)
    return next((name for name in sorted(twins) if name in published), "")
