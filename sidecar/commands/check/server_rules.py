"""Checks the API server: whether it answers, its version, the clock, and the API of the policy that labels claims."""

import re
from collections.abc import Iterator
from typing import Final

from sidecar.commands.check.findings import Findings, NotAsked
from sidecar.commands.check.flag_rules import config_of
from sidecar.commands.check.lines import Line, failed, not_asked, ok, warning
from sidecar.config.table import LABELLED

OLDEST: Final = (1, 33)
"""Of the versions of Kubernetes that this program is made for."""
SLIGHTLY_OFF, FAR_OFF = 5.0, 60.0
"""Seconds by which a clock may differ: leases, verdicts and tokens live for minutes."""
_POLICY_HOME: Final = "deploy/components/scoped-watches"


def version(found: Findings) -> Iterator[Line]:
    check, server = "API server", found.server
    if isinstance(server, NotAsked):
        yield failed(check, f"does not answer: {server.why}", "check --kubeconfig, --context and the way to it")
        return
    number = re.match(r"v?(\d+)\.(\d+)", server.version)
    if number and (int(number[1]), int(number[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        yield warning(check, f"{server.version} is older than {oldest}, for which this program is made", "upgrade Kubernetes")
    else:
        yield ok(check, f"{server.version or 'of no known version'}; this command is {found.program}")


def clock(found: Findings) -> Iterator[Line]:
    check, server = "clock", found.server
    if isinstance(server, NotAsked):
        return
    whose = f"the clock of node {found.node or 'here'}" if found.on_node else "the clock of this machine, not of a node,"
    if server.ahead is None:
        yield not_asked(check, NotAsked("the API server's answer has no Date"))
        return
    off, which = max(0.0, abs(server.ahead) - server.rounded), "ahead of" if server.ahead > 0 else "behind"
    if off < SLIGHTLY_OFF:
        yield ok(check, f"{whose} agrees with the API server's to {SLIGHTLY_OFF:g} s")
        return
    text = f"{whose} is {off:.0f} s {which} the API server's: what is dated there counts too long, or not at all"
    line = failed if found.on_node and off >= FAR_OFF else warning
    yield line(check, text, "let the node and the API servers keep time by NTP" if found.on_node else "check the nodes too")


def claim_policy(found: Findings) -> Iterator[Line]:
    """Of interest only where the sidecar counts on it."""
    check, config, policy = "claim labels", config_of(found), found.policy
    if config is None or config.watch_scope != LABELLED:
        return
    follows = f"--watch-scope={LABELLED} does nothing: this node hears of all claims"
    if isinstance(policy, NotAsked):
        yield not_asked(check, policy)
    elif not policy.served:
        yield warning(
            check, f"the API server has no MutatingAdmissionPolicy of v1: {follows}", "it takes Kubernetes 1.36; leave the flag out"
        )
    elif not policy.there:
        variant = _POLICY_HOME if "v1" in policy.served else f"{_POLICY_HOME}-v1beta1"
        yield warning(check, f"the policy that labels claims is missing: {follows}", f"install {variant}")
    elif not policy.bound:
        yield warning(check, f"the policy that labels claims has no binding: {follows}", f"install {_POLICY_HOME} whole")
    else:
        yield ok(check, "the policy that labels claims is there, with its binding")
