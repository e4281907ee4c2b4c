"""What follows from what the role allows."""

import itertools

from sidecar.kube.api import CAPACITIES, NODES
from sidecar.rights.rights import (
    NOT_KNOWN,
    PATCH_VOLUMES,
    UPDATE_VOLUMES,
    FinalizerWrites,
    Right,
    Rights,
    asked_next,
    finalizer_writes,
)

EACH = (None, True, False)


def rights(patch: bool | None, update: bool | None) -> Rights:
    said = {PATCH_VOLUMES: patch, UPDATE_VOLUMES: update}
    return Rights(*(frozenset(right for right, answer in said.items() if answer is wanted) for wanted in (True, False)))


def test_who_may_patch_or_does_not_know_patches() -> None:
    for update in EACH:
        for patch in [None, True]:
            assert finalizer_writes(rights(patch, update)) is FinalizerWrites.BY_PATCH


def test_who_may_not_patch_updates_only_if_that_is_known_to_be_allowed() -> None:
    for update, writes in [(True, FinalizerWrites.BY_UPDATE), (False, FinalizerWrites.NEVER), (None, FinalizerWrites.NEVER)]:
        assert finalizer_writes(rights(False, update)) is writes


def test_questions_end_and_decide_and_health_costs_one() -> None:
    """From whatever is known, to whatever is then answered."""
    for patch, update in list(itertools.product(EACH, EACH)):
        for answers in itertools.product((True, False), repeat=2):
            known, asked = rights(patch, update), 0
            said = dict(zip((PATCH_VOLUMES, UPDATE_VOLUMES), answers, strict=True))
            while questions := asked_next(known):
                asked += len(questions)
                assert all(known.may(right) is None for right in questions), "what is known is not asked again"
                known = known.joined(
                    Rights(
                        frozenset(right for right in questions if said[right]),
                        frozenset(right for right in questions if not said[right]),
                    )
                )
            assert known.may(PATCH_VOLUMES) is not None
            assert asked <= (1 if known.may(PATCH_VOLUMES) else 2)
            may_write = known.may(PATCH_VOLUMES) or known.may(UPDATE_VOLUMES)
            assert (finalizer_writes(known) is not FinalizerWrites.NEVER) is bool(may_write)


def test_a_right_is_named_as_kubectl_names_it() -> None:
    assert str(PATCH_VOLUMES) == "patch persistentvolumes"
    assert str(Right("patch", NODES, "status")) == "patch nodes/status"
    assert str(Right("get", CAPACITIES, own_namespace=True)) == "get csistoragecapacities.storage.k8s.io"


def test_of_what_nobody_has_asked_nothing_is_known() -> None:
    assert NOT_KNOWN.may(PATCH_VOLUMES) is None and finalizer_writes(NOT_KNOWN) is FinalizerWrites.BY_PATCH
