"""What `explain node` prints, to the letter where people read it, the lists of reasons in the READMEs, and the figures behind it."""

from dataclasses import replace
from pathlib import Path

from sidecar.drain.facts.own_notes import State
from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.judgement.assess import assess
from sidecar.drain.publish.as_json import bytes_in_the_way
from sidecar.drain.publish.as_text import as_json, hindrances_table, reasons_table, render
from sidecar.drain.vocabulary import MEANING, Fate, Intent, Reason, VolumeClass
from sidecar.model.nodes import Pod
from tests.harness.drain import samples
from tests.harness.drain.judgements import GIB, blocked, blocker, everything, ready

README = Path(__file__).resolve().parents[3] / "deploy" / "components" / "drain" / "reasons" / "README.md"


def test_D2_the_table_says_it_all() -> None:
    assert render(everything()).splitlines() == [
        "Node n1, volumes of local.example.com, at 2023-11-14T22:13:20Z",
        "",
        "May it be drained?  False  VolumeInUse  about draining",
        "May it be retired?  False  VolumeInUse  PersistentVolumeClaim shop/db-0: VolumeInUse",
        "",
        "3 volumes with 11.5Gi; 512Mi keep it from being drained, 10.5Gi keep it from being retired.",
        "",
        "WHAT BLOCKS  VOLUME     SIZE   CLASS  REASON       POLICY           BLOCKS",
        "shop/db-0    pv-db-0    512Mi  InUse  VolumeInUse  Block (default)  reboot, retire",
        "    shop/db-0 has it",
        "shop/data-0  pv-data-0  10Gi   Idle   LastCopy     Block (default)  retire",
        "",
        "What to do:",
        f"  VolumeInUse: {MEANING[Reason.VOLUME_IN_USE].says}",
        f"    {MEANING[Reason.VOLUME_IN_USE].remedy}",
        f"  LastCopy: {MEANING[Reason.LAST_COPY].says}",
        f"    {MEANING[Reason.LAST_COPY].remedy}",
        "",
        "POD        IF DRAINED            IF RETIRED             VOLUMES  BUDGETS  WHY",
        "shop/db-0  ReturnsAfterUncordon  StrandedUntilUncordon  pv-db-0  shop/db  its volume stays here",
        "",
        "Budgets that would be used up while the node is away, so that draining another node would wait:",
        "  shop/db allows 1 now, and 1 of its pods would stay away: shop/db-0",
        "",
        "Where volumes could go:",
        "  pv-db-0 to n2",
        "  pv-data-0 to no node: 5Gi missing",
        "    n3: cordoned",
        "",
        "Worth knowing:",
        "  budgets were looked at",
    ]


def test_of_one_intent_only_what_concerns_it_is_told() -> None:
    text = render(everything(), intent=Intent.REBOOT)
    assert "May it be drained?" in text and "IF DRAINED" in text and "shop/db-0 " in text
    assert not [word for word in ("retired", "RETIRED", "shop/data-0", "StrandedUntilUncordon", "LastCopy") if word in text]


def test_nobody_s_text_can_pass_as_a_line_of_the_table() -> None:
    text = render(blocked(blocker(message="x\nMay it be retired?  True\x1b[2J"), notes=("a\rb",)))
    assert "\x1b" not in text and "\r" not in text
    assert len([line for line in text.splitlines() if line.startswith("May it be retired?")]) == 1


def test_D11_a_blocker_carries_everything() -> None:
    assert as_json(blocked())["blockers"] == [
        {
            "kind": "PersistentVolumeClaim",
            "namespace": "shop",
            "name": "data-0",
            "uid": "uid-data-0",
            "volume": "pv-data-0",
            "bytes": 10 * GIB,
            "class": "Idle",
            "reason": "LastCopy",
            "policy": "Block",
            "policySource": "default",
            "blocks": ["retire"],
            "remedy": MEANING[Reason.LAST_COPY].remedy,
        }
    ]


def test_every_reason_to_withhold_a_verdict_is_in_the_table() -> None:
    rows = reasons_table().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == [str(reason) for reason in Reason if reason in MEANING]
    assert {reason for reason in Reason if reason not in MEANING} == {Reason.NOTHING_HERE, Reason.NOTHING_BLOCKS}
    assert all(row.count(" | ") == 2 for row in rows)


def test_the_readmes_of_the_components_have_these_tables() -> None:
    components = README.parents[2]
    assert README.read_text().partition("<!-- reasons -->\n")[2].startswith(reasons_table() + "\n")
    assert not {word for word in (*Fate, *VolumeClass, *State) if f"`{word}`" not in README.read_text()}, "words that stand on no page"
    for name, table in (("emptying", hindrances_table()), ("reprovision", hindrances_table(anew=True))):
        assert (components / name / "README.md").read_text().partition("<!-- hindrances -->\n")[2].startswith(table + "\n"), name


# --- The figures that every rendering takes: what lies here, and what of it is in the way ---


LONE, OTHER = (samples.pod(name, *claims, owner=None) for name, claims in (("a", ("data-0", "data-1")), ("b", ("data-0",))))
OF_LONE = replace(samples.owner("Pod", "a"), uid=LONE.uid)


def world(*policies: str | None, pods: tuple[Pod, ...] = (), **changes: object) -> Snapshot:
    """Of 10 Gi, 20 Gi and so on."""
    volumes = tuple(samples.volume(f"pv-{n}", f"data-{n}", gib=10 * (n + 1), policy=policy) for n, policy in enumerate(policies))
    return samples.snapshot(volumes=volumes, pods=pods, **changes)  # type: ignore[arg-type]


def test_each_volume_that_is_in_the_way_counts_once() -> None:
    for snapshot, reboot, retire in [
        (world("Ignore", "Ignore", pods=(LONE,)), 30, 30),  # all volumes of a pod
        (world("Ignore", "Ignore", pods=(LONE, OTHER)), 30, 30),  # of two pods that share one
        (world("Ignore", "Block", pods=(LONE,)), 30, 30),  # one blocks by itself as well
        (world("Ignore", "Block", None, pods=(OTHER,)), 10, 60),  # others block without a pod
        (world("Ignore", pods=(samples.pod("db-0", "data-0"),), budgets=(samples.budget(allowed=0),)), 10, 0),  # a budget
        # what ends with its pod is not in the way
        (world("Ignore", "Ignore", pods=(replace(LONE, ephemeral=("data-1",)),), claims=[samples.claim("data-1", owner=OF_LONE)]), 10, 10),
    ]:
        found = assess(snapshot)
        assert [bytes_in_the_way(found, intent) for intent in Intent] == [reboot * GIB, retire * GIB]
        assert as_json(found)["bytes"]["remaining"] == retire * GIB


def test_a_node_with_nothing_on_it_takes_two_lines() -> None:
    assert render(ready()).splitlines()[2:] == [
        "May it be drained?  True  NoVolumes  no volume is here",
        "May it be retired?  True  NoVolumes  no volume is here",
    ]
