"""What a program that we start does with signals, whoever started us.

A shell without job control starts its background jobs with SIGINT ignored, and that is inherited: a program started from there would not
hear Ctrl-C, and a test that sends it would wait in vain. nohup does the same with SIGHUP.

    subprocess.Popen(command, preexec_fn=heard)
"""

from __future__ import annotations

import ctypes
import signal

_HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# Looked up here because loading a library between fork and exec is not safe.
_prctl = ctypes.CDLL(None, use_errno=True).prctl
_PR_SET_PDEATHSIG = 1


def heard() -> None:
    """Between fork and exec: signals end the program again, unless it says otherwise itself."""
    for number in _HEARD:
        signal.signal(number, signal.SIG_DFL)


def die_with_parent() -> None:
    """The same, and the program is killed when the thread that started it ends."""
    heard()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
