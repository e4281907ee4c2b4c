"""What hack/parity makes of events of others: the API server takes one that names no object."""

from hack.parities.stage import Seen, is_of_the_program, name_of

NAMELESS = {
    "metadata": {"name": "unnamed", "namespace": "default"},
    "involvedObject": {"kind": "Node"},
    "reason": "Odd",
    "message": "of nobody",
    "type": "Normal",
    "source": {},
}


def test_an_event_that_names_nobody_is_of_no_case():
    assert name_of(NAMELESS) == "" and is_of_the_program(NAMELESS)
    assert "of nobody" in Seen([], [], [NAMELESS], [], {}).signature()
