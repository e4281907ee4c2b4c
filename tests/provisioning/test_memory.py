"""What is kept beyond the caches, and for how long."""

from sidecar.ownership.rules import Race
from sidecar.provisioning.memory import Memory
from sidecar.provisioning.needs import SNAPSHOT, Ref
from sidecar.provisioning.view import Leaving
from tests import samples


def test_a_claim_concerns_us_while_something_is_under_way() -> None:
    memory = Memory()
    assert not memory.concerns("uid")
    assert memory.get("uid") is None
    progress = memory.of("uid")
    assert not memory.concerns("uid")
    progress.race = Race(0, 1.0)
    assert memory.concerns("uid")
    progress.race, progress.in_hand = None, True
    assert memory.concerns("uid")
    progress.in_hand, progress.remembered = False, samples.claim()
    assert memory.concerns("uid") and (memory.in_progress(), memory.unsaved()) == (1, 0)
    progress.unsaved = {}
    assert memory.concerns("uid") and (memory.in_progress(), memory.unsaved()) == (0, 1)
    memory.forget("uid")
    assert not memory.concerns("uid")


def test_what_a_claim_is_filled_from_is_known_until_it_is_forgotten() -> None:
    memory, source = Memory(), Ref(SNAPSHOT, "snap", "ns")
    memory.of("uid").source = source
    assert memory.fills_from(source)
    assert not memory.fills_from(Ref(SNAPSHOT, "snap", "elsewhere"))
    memory.forget("uid")
    assert not memory.fills_from(source)


def test_a_namesake_of_a_volume_that_left_begins_at_the_beginning() -> None:
    memory = Memory()
    assert memory.leaving(samples.volume()) is Leaving.NOT_YET
    memory.left(samples.volume(), Leaving.EMPTIED)
    assert memory.leaving(samples.volume()) is Leaving.EMPTIED
    assert memory.leaving(samples.volume(meta={"uid": "another"})) is Leaving.NOT_YET
    memory.forget_volume("test-testi")
    assert memory.leaving(samples.volume()) is Leaving.NOT_YET
