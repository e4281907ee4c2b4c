"""What is said of a pod that runs with a claim or a volume that is gone: something of it is mounted here, and nobody can tell what."""

from sidecar.drain.facts.snapshot import CLAIM, unread_key
from sidecar.model.nodes import Pod


def has_mounted(pod: Pod) -> bool:
    """One that waits for a claim that nobody makes has mounted nothing."""
    return pod.phase == "Running"


def claim_is_gone(full_name: str, pod: Pod) -> str:
    return f"{unread_key(CLAIM, full_name)} does not exist, and pod {pod.full_name} runs with it: which volume it mounts is not known"


def volume_is_gone(name: str, pod: Pod) -> str:
    return f"volume {name} does not exist, and pod {pod.full_name} runs with it: where its data is is not known"
