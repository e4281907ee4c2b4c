"""Every command, once: what it is called, what it is for, its flags and examples. Parser, help and completion are made from this."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sidecar.commands.flags import (
    DELETE,
    DRIVER,
    DRIVER_ALONE,
    DRIVER_TO_CHECK,
    EXIT_CODE,
    FILE,
    FORCE,
    IMAGE,
    INTENT,
    LISTEN,
    NAMESPACE,
    NAMESPACE_ALONE,
    NAMESPACE_OF_OURS,
    NODE_ALONE,
    REACH,
    RELEASE,
    RELEASE_IO,
    TERMINATING,
    YES,
    Flag,
    output,
)
from sidecar.commands.printing import PROGRAM, program

SHELLS: Final = ("bash", "zsh", "fish")


@dataclass(frozen=True, slots=True)
class Command:
    """One command, or several that begin with the same word."""

    name: str
    synopsis: str
    """What its line looks like, without the program and its flags."""
    summary: str
    """One line, for the list of commands."""
    about: str = ""
    flags: tuple[Flag, ...] = ()
    """Its own."""
    of_run: tuple[str, ...] = ()
    """Those of `run` that matter for it; it takes them all."""
    examples: tuple[tuple[str, str], ...] = ()
    """A line without the program, and what it does."""
    exit_codes: tuple[tuple[str, str], ...] = ()
    words: tuple[str, ...] = ()
    """What its argument may be, where that is known."""
    aliases: tuple[str, ...] = ()

    @property
    def verb(self) -> str:
        return self.name.partition(" ")[0]


_CLUSTER: Final = ("kubeconfig", "master")
_POLICIES: Final = ("drain-default-policy",)
_SOCKET: Final = ("csi-address", "journal-dir")
_DONE: Final = (("0", "done"), ("1", "something could not be read or written"), ("2", "the line cannot be read"))
_ANSWERED: Final = (("0", "explained"), ("1", "what is needed could not be read"), ("2", "the line cannot be read"))
_VERDICT: Final = (
    ("0", "explained; with --exit-code: all that was asked about is ready"),
    ("1", "what is needed could not be read"),
    ("2", "the line cannot be read"),
    ("3", "with --exit-code: at least one is not ready"),
    ("4", "with --exit-code: of at least one it is not known, and none is known not to be ready"),
)
_AGREED: Final = (("0", "done"), ("1", "something could not be read or written, or nobody agreed"), ("2", "the line cannot be read"))
_ANNOUNCES: Final = (
    "It shows both verdicts of each node and what blocks this intent, asks, and writes the annotation drain-intent, for all drivers of the "
    "node. It neither cordons nor evicts: it prints the command that does. If one of the nodes does not exist, none is written."
)
_NODE_FLAGS: Final = (DRIVER_ALONE, YES, output(), *REACH)

# fmt: off
TABLE: Final = (
    Command("run", "[run]", "work as a sidecar until stopped; also what happens without a command"),
    Command("check", "check [--driver NAME]", "say what is wrong with the set-up, in one line each, and what to do; writes nothing",
            "In the sidecar's pod (kubectl exec) it asks the driver, and checks the flags of the process that runs. From outside it looks "
            "for the workload that has our image. Flags of run that stand behind its own are checked instead.",
            (DRIVER_TO_CHECK, NAMESPACE_OF_OURS, IMAGE, output(), *REACH), (*_CLUSTER, "csi-address"),
            (("check --driver local.example", "from outside"),
             ("check", "in the pod: kubectl exec ds/csi-node-sidecar-driver -c csi-provisioner -- csi-node-sidecar check"),
             ("check --driver local.example --enable-capacity --capacity-ownerref-level=0", "flags that are not in use yet"),
             ("check --driver local.example -o json", "for a script, or an issue")),
            (("0", "nothing is wrong; some lines may be marked ! to look at"), ("1", "something is wrong"),
             ("2", "the line cannot be read"))),
    Command("explain", "explain pvc|pod|node|nodes|volumes|maintenance", "show what this program would do, and why; writes nothing",
            "It applies the rules of the running program to what the cluster says now.",
            examples=(("explain pvc default/data", "why a claim has no volume yet"),
                      ("explain pod default/db-0", "whether a pod would fail over"),
                      ("explain node n1 --intent retire", "what keeps a node from being retired"),
                      ("explain nodes", "all nodes that have volumes, in one line each"),
                      ("explain volumes --node n1", "what is on a node, and by whose policies"))),
    Command("explain pvc", "explain pvc NAMESPACE/NAME|NAME", "show why a claim has no volume yet, and what to do; writes nothing",
            "Its class, events, node, that node's sidecar, and free space against its size, from what the cluster shows, wherever it is "
            "typed. The last line says what to do.",
            (NAMESPACE, EXIT_CODE, output(), *REACH), _CLUSTER,
            (("explain pvc default/data", "a claim of the namespace default"),
             ("explain pvc data -n team-a --context staging", "the same of another namespace and cluster"),
             ("explain pvc default/data --exit-code", "a step of a script: 0 if the claim has its volume"),
             ("explain pvc default/data -o json", "for a script")),
            (("0", "explained; with --exit-code: the claim has its volume"), *_ANSWERED[1:],
             ("3", "with --exit-code: something keeps it from its volume"),
             ("4", "with --exit-code: it waits as it should, or what keeps it is not known")), aliases=("persistentvolumeclaim",)),
    Command("explain pod", "explain pod NAMESPACE/NAME|NAME", "show whether a pod would fail over, and what is against it; writes nothing",
            "Before a failure: each guard, by what the cluster shows. During one also those of the sidecars that look at it, with source "
            "and age.",
            (NAMESPACE, DRIVER_ALONE, EXIT_CODE, output(), *REACH), _CLUSTER,
            (("explain pod default/db-0", "a pod of the namespace default"),
             ("explain pod db-0 -n shop --exit-code", "a step of a script: 0 if it would fail over"),
             ("explain pod shop/db-0 -o json", "for a script")),
            (("0", "explained; with --exit-code: it would fail over"), *_ANSWERED[1:],
             ("3", "with --exit-code: something stands against it"), ("4", "with --exit-code: it is not known")), aliases=("po",)),
    Command("explain node", "explain node NAME", "show whether a node may be drained or retired, and what blocks that; writes nothing",
            "Both verdicts for each driver of the node, each blocker with its remedy, and what becomes of each pod. It works from any "
            "machine, whether or not a sidecar runs there.",
            (INTENT, DRIVER_ALONE, EXIT_CODE, output(), *REACH), (*_CLUSTER, *_POLICIES),
            (("explain node n1", "both verdicts, and all that blocks either"),
             ("explain node n1 --intent retire", "only what keeps it from being retired"),
             ("explain node n1 --intent reboot --exit-code", "a step of a script: 0 if it may be drained for a reboot"),
             ("explain node n1 -o yaml", "one entry for each driver")),
            _VERDICT, aliases=("no",)),
    Command("explain nodes", "explain nodes", "the same of all nodes that have volumes, in one line each; --exit-code tells scripts",
            "One line for each node and driver. The cluster is listed once, for however many nodes.",
            (INTENT, DRIVER_ALONE, EXIT_CODE, output(wide=True), *REACH), (*_CLUSTER, *_POLICIES),
            (("explain nodes", "may they be drained, may they be retired"),
             ("explain nodes --driver local.example -o wide", "of one driver, with the first blocker of each"),
             ("explain nodes --intent reboot --exit-code", "0 if all of them may be drained for a reboot")),
            _VERDICT),
    Command("explain volumes", "explain volumes", "show each volume, where it is, its policies and who said them, and what no node has",
            "Each volume with its place, its class, the policy for each intent and who said it, and the pods that use it; orphans at the "
            "end.",
            (NODE_ALONE, DRIVER_ALONE, output(wide=True), *REACH), (*_CLUSTER, *_POLICIES),
            (("explain volumes", "all of them"),
             ("explain volumes --node n1 -o wide", "those of one node, with handle and reclaim policy"),
             ("explain volumes --driver local.example -o json", "for a script")),
            _ANSWERED, aliases=("pv",)),
    Command("explain maintenance", "explain maintenance NAME|-f FILE", "show what a PlannedMaintenance does to which pods",
            "Its nodes, its plan in order, what becomes of each pod and who says so, and what blocks. With -f before it is created.",
            (FILE, DRIVER_ALONE, EXIT_CODE, output(), *REACH), (*_CLUSTER, *_POLICIES),
            (("explain maintenance kernel-update", "one that was created"),
             ("explain maintenance -f kernel-update.yaml", "one that was not")),
            _VERDICT, aliases=("pm", "plannedmaintenance")),
    Command("node", "node reboot|retire|release NAME...", "announce what a drain is for, or take that back; asks",
            _ANNOUNCES,
            examples=(("node reboot n1", "the disks come back"),
                      ("node retire n1 n2", "they do not"),
                      ("node release n1", "take it back"))),
    Command("node reboot", "node reboot NAME...", "announce that a drain of the node is for a reboot; asks",
            f"{_ANNOUNCES} A reboot counts while a node is cordoned, and ends when it is uncordoned.",
            _NODE_FLAGS, (*_CLUSTER, "dry-run", *_POLICIES),
            (("node reboot n1", "show what that means, ask, and announce it"),
             ("node reboot n1 --yes && kubectl drain n1 --ignore-daemonsets", "in a script")),
            _AGREED),
    Command("node retire", "node retire NAME...", "announce that the node will not come back; asks",
            f"{_ANNOUNCES} It stays until it is taken back.",
            _NODE_FLAGS, (*_CLUSTER, "dry-run", *_POLICIES),
            (("node retire n1 n2", "ask once for both"),
             ("node retire n1 --dry-run -o json", "what would be written, and the verdicts, for a script")),
            _AGREED),
    Command("node release", "node release NAME...", "take back what was announced; asks",
            "It removes the annotation drain-intent. Cordons and taints stay as they are.",
            _NODE_FLAGS, (*_CLUSTER, "dry-run"),
            (("node release n1", "take back what was announced for one node"),),
            _AGREED),
    Command("leftovers", "leftovers --driver NAME",
            "list volumes of this node that may be left behind, and why; --delete VOLUME deletes one; asks; run it on the node",
            "It reads the journals beside the driver's socket, so it runs in the sidecar's container (kubectl exec). --delete deletes one "
            "volume with its data, if no PersistentVolume has its handle and no claim leads to it.",
            (DRIVER, DELETE, YES, output(), *REACH), (*_SOCKET, "dry-run", *_CLUSTER),
            (("leftovers --driver local.example", "list them"),
             ("leftovers --driver local.example --delete pvc-5f1c", "delete one, after a question"),
             ("leftovers --driver local.example -o json", "for a script")),
            (("0", "listed or deleted"), ("1", "it could not be, must not be, nobody agreed or nobody knows"),
             ("2", "the line cannot be read"))),
    Command("label", "label --driver NAME", "have claims labelled that are older than components/scoped-watches; --dry-run shows them",
            "The policy that labels claims acts on writes, so each claim without its label is written once, by a patch that says nothing.",
            (DRIVER, NAMESPACE_ALONE, output(), *REACH), ("dry-run", *_CLUSTER, "kube-api-qps", "kube-api-burst"),
            (("label --driver local.example --dry-run", "show which claims have no label yet"),
             ("label --driver local.example -n team-a", "only those of one namespace"),
             ("label --driver local.example --kube-api-qps 50", "faster")),
            _DONE),
    Command("uninstall", "uninstall --driver NAME",
            "remove what that driver's sidecars have put on nodes; run it after its DaemonSet is deleted",
            "It removes marks, conditions and reports of nodes, gates and leases. What people wrote stays, and so do claims and volumes.",
            (DRIVER, output(), *REACH), ("dry-run", *_CLUSTER),
            (("uninstall --driver local.example --dry-run", "show what would be removed"),
             ("uninstall --driver local.example --context staging", "remove it from another cluster than the current one")),
            _DONE),
    Command("release-finalizers", "release-finalizers --driver NAME",
            "take our finalizer off a driver's PersistentVolumes, for the way back to an old provisioner; without --yes it only shows them",
            "Run it when the driver's DaemonSet has its former image: a sidecar that runs puts the finalizer on again, so it refuses while "
            "one does. A volume that is being deleted keeps it, as its data would stay on the node.",
            (DRIVER, RELEASE, FORCE, TERMINATING, IMAGE, output(), *REACH), ("dry-run", *_CLUSTER, "kube-api-qps"),
            (("release-finalizers --driver local.example", "show which volumes have it; nothing is changed"),
             ("release-finalizers --driver local.example --yes", "take it off"),
             ("release-finalizers --driver local.example --yes -o json", "in a script")),
            (("0", "no volume has it any more; without --yes: shown"), ("1", "a volume still has it, or it was refused"),
             ("2", "the line cannot be read"))),
    Command("read-drbd", "read-drbd --listen SOCKET",
            "hand on what drbdsetup prints, for fail-over; runs until stopped, in a container of its own",
            "What it prints goes to whoever may reach the socket, which stands beside the driver's. Nothing is changed without --release.",
            (LISTEN, RELEASE_IO),
            examples=(("read-drbd --listen /csi/drbd.sock --release", "as the container does"),),
            exit_codes=(("0", "stopped"), ("1", "the socket cannot be made"), ("2", "the line cannot be read"))),
    Command("version", "version [-o json]", "print name and version; as JSON also commit, CSI, Python and platform"),
    Command("help", "help [COMMAND]", "show how a command is used, with examples", examples=(("help explain node", "the same as --help"),)),
    Command("completion", "completion bash|zsh|fish", "print what completes these commands and their flags in a shell",
            f"It calls {PROGRAM} for each word to complete, and asks no cluster.", words=SHELLS,
            examples=((f"completion bash > /etc/bash_completion.d/{PROGRAM}", "for everybody on this machine"),
                      ("completion bash > ~/.csi-node-sidecar.bash", "then, in ~/.bashrc: source ~/.csi-node-sidecar.bash"),
                      (f"completion zsh > \"${{fpath[1]}}/_{PROGRAM}\"", "before compinit runs"),
                      (f"completion fish > ~/.config/fish/completions/{PROGRAM}.fish", ""))),
)
# fmt: on
BY_NAME: Final[Mapping[str, Command]] = MappingProxyType({command.name: command for command in TABLE})
VERBS: Final = tuple(dict.fromkeys(command.verb for command in TABLE))


def children(verb: str) -> tuple[Command, ...]:
    """Those that begin with this word and go on."""
    return tuple(command for command in TABLE if command.name.startswith(f"{verb} "))


def flags_of(verb: str) -> tuple[Flag, ...]:
    """All that a line with this verb may have: what goes together is found when it is read."""
    found = {flag.name: flag for command in (*children(verb), BY_NAME[verb]) for flag in command.flags}
    if any(flag.name == "output" and "wide" in flag.words for command in children(verb) for flag in command.flags):
        found["output"] = output(wide=True)
    return tuple(found.values())


def meant(words: Sequence[str]) -> Command | None:
    """The command that these words are about; words that are no part of its name are passed over."""
    if not words or words[0] not in BY_NAME:
        return None
    known = {word: child for child in children(words[0]) for word in (child.name.partition(" ")[2], *child.aliases)}
    return next((known[word] for word in words[1:] if word in known), BY_NAME[words[0]])


def usage(verb: str) -> str:
    """One line for messages."""
    return f"usage: {program()} {BY_NAME[verb].synopsis} [flags]; `{program()} help {verb}` shows them, with examples"
