from hack.sim.world.transcript import Transcript


def test_it_says_when_where_and_what():
    now = [0.0]
    transcript = Transcript(lambda: now[0])
    transcript.tell("world", "outage")
    now[0] = 12.3456
    transcript.voice("n1")("CreateVolume pvc-1: OK")
    assert str(transcript) == "     0.000  world      outage\n    12.346  n1         CreateVolume pvc-1: OK"


def test_what_concerns_one_thing():
    transcript = Transcript(lambda: 1.0)
    for what in ("claim data-1", "kill n0", "delete data-1"):
        transcript.tell("world", what)
    assert transcript.about("data-1").count("\n") == 1
    assert "kill" not in transcript.about("data-1")
