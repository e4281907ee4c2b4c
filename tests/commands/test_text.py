"""What `explain node` prints, to the letter where people read it, and the list of words on the page."""

from hack.lib.control_plane import REPOSITORY
from sidecar.commands.tables import Fitted
from sidecar.commands.text import render
from sidecar.drain.assess import Assessment, assess
from sidecar.drain.marks import State
from sidecar.drain.snapshot import Own
from sidecar.drain.words import Fate, Intent, Reason, VolumeClass
from tests.harness.drain.listed_cluster import DRIVER, Lists, claim, look, node, pod, volume


def judged(*, note: str = "") -> Assessment:
    """A volume that a replica uses, and an idle one."""
    user = pod("db-0", "used", node="n1", phase="Running")
    user["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "u", "controller": True}]
    claims = [claim("used", volume_name="pv-used"), claim("idle", volume_name="pv-idle")]
    claims[1]["metadata"]["annotations"] = {"csi-node-sidecar.io/drain-policy": note} if note else {}
    volumes = [volume(f"pv-{name}", "n1", claim=name) for name in ("used", "idle")]
    kube = Lists({"nodes": [node("n1")], "pods": [user], "persistentvolumeclaims": claims, "persistentvolumes": volumes})
    return assess(look(kube).snapshot("n1", DRIVER, Own()))


def test_the_table_says_it_all() -> None:
    assert render(judged(), Fitted(), beside=["its own sidecar says: nothing"]).splitlines() == [
        "Node n1, volumes of local.example, at 1970-01-01T00:00:07Z",
        "",
        "May it be drained?  True   NothingBlocks  nothing that local.example has on this node blocks it",
        "May it be retired?  False  LastCopy       PersistentVolumeClaim default/idle: LastCopy and 1 more",
        "its own sidecar says: nothing",
        "",
        "2 volumes with 2Gi; 0 keep it from being drained, 2Gi keep it from being retired.",
        "",
        "WHAT BLOCKS   VOLUME   SIZE  CLASS  REASON       POLICY           BLOCKS",
        "default/idle  pv-idle  1Gi   Idle   LastCopy     Block (default)  retire",
        "    no pod uses it",
        "default/used  pv-used  1Gi   InUse  VolumeInUse  Block (default)  retire",
        "    used by default/db-0",
        "",
        "What to do:",
        f"  LastCopy: {Reason.LAST_COPY.says}",
        f"    {Reason.LAST_COPY.remedy}",
        f"  VolumeInUse: {Reason.VOLUME_IN_USE.says}",
        f"    {Reason.VOLUME_IN_USE.remedy}",
        "",
        "POD           IF DRAINED            IF RETIRED             VOLUMES  WHY",
        "default/db-0  ReturnsAfterUncordon  StrandedUntilUncordon  pv-used  only this node has pv-used: it stays Pending until the "
        "uncordon; retired, it stays Pending for as long as its claims exist",
    ]


def test_of_one_intent_only_what_concerns_it_is_told() -> None:
    text = render(judged(), Fitted(), intent=Intent.REBOOT)
    assert "May it be drained?" in text and "IF DRAINED" in text and "default/db-0 " in text
    assert not [word for word in ("May it be retired", "RETIRED", "default/idle", "StrandedUntilUncordon", "LastCopy") if word in text]


def test_nobody_s_text_can_pass_as_a_line_of_the_table() -> None:
    text = render(judged(note="x\nMay it be retired?  True\x1b[2J"), Fitted())
    assert "\x1b" not in text
    assert len([line for line in text.splitlines() if line.startswith("May it be retired?")]) == 1


def test_every_reason_to_withhold_something_says_what_to_do() -> None:
    assert {reason for reason in Reason if not reason.remedy} == {Reason.NOTHING_BLOCKS}


def test_the_page_of_reasons_says_what_the_program_says_and_knows_its_other_words() -> None:
    page = (REPOSITORY / "deploy" / "components" / "drain" / "reasons" / "README.md").read_text()
    rows = (f"| `{reason}` | {reason.says} | {reason.remedy} |" for reason in Reason if reason.remedy)
    assert "\n".join(("| reason | what it says | what to do |", "|---|---|---|", *rows)) in page
    assert not [word for words in (Fate, VolumeClass, State) for word in words if f"`{word}`" not in page]
