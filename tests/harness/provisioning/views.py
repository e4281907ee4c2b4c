"""Views of a claim as the rules see it."""

from dataclasses import replace
from typing import Any

from sidecar.provisioning.decisions import Create
from sidecar.provisioning.rules import decide
from sidecar.provisioning.view import ClaimView
from tests.harness import samples


def view(**changes: Any) -> ClaimView:
    base = ClaimView(now=100.0, here=samples.here(), chance=0.5, claim=samples.claim(selected="foo"), class_=samples.class_())
    return replace(base, **changes)


def create(**changes: Any) -> Create:
    decision = decide(view(**changes))
    assert isinstance(decision, Create), decision
    return decision
