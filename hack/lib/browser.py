"""A browser without a window, for tests of pages. The machine's, or Debian's, unpacked in the cache and not installed."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hack.lib import cache, debian
from hack.lib.failure import Failure
from hack.lib.progress import step

PACKAGE = "chromium-headless-shell"
PLACE = "usr/lib/chromium/chromium-headless-shell"
INSTALLED = ("chromium-headless-shell", "chromium", "google-chrome")
DARK, LIGHT = 0, 1
"""As Blink numbers what a reader prefers."""
SECONDS = 120


@dataclass(frozen=True)
class Browser:
    program: str
    libraries: str = ""

    def dom(self, page: Path) -> str:
        """The page as the browser has read it, when its scripts have ended."""
        return self._run(page, "--dump-dom")

    def picture(self, page: Path, *, scheme: int, out: Path, width: int = 1000, height: int = 800) -> bytes:
        """PNG."""
        self._run(page, f"--screenshot={out}", f"--window-size={width},{height}", f"--blink-settings=preferredColorScheme={scheme}")
        return out.read_bytes()

    def _run(self, page: Path, *words: str) -> str:
        with tempfile.TemporaryDirectory(prefix="browser-") as profile:
            # Pages of our own: without a sandbox, which root and containers cannot have.
            fixed = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
            environ = {**os.environ, "HOME": profile, **({"LD_LIBRARY_PATH": self.libraries} if self.libraries else {})}
            command = [self.program, *fixed, *words, page.absolute().as_uri()]
            done = subprocess.run(command, check=False, capture_output=True, text=True, env=environ, timeout=SECONDS)
        if done.returncode:
            raise Failure(f"{Path(self.program).name} failed (exit {done.returncode}):\n{done.stderr[-2000:]}")
        return done.stdout


def provide() -> Browser:
    if found := next((path for name in INSTALLED if (path := shutil.which(name))), None):
        return Browser(found)
    release = platform.freedesktop_os_release()
    kept = cache.root() / f"browser-{release.get('ID')}-{release.get('VERSION_ID')}-{platform.machine()}"
    if not kept.exists():
        with cache.only_one_at_a_time(kept.parent / "browser-lock"):
            if not kept.exists():
                _fetch(kept)
    folders = sorted({str(file.parent) for file in kept.rglob("*.so*")})
    return Browser(str(kept / PLACE), os.pathsep.join(folders))


def _fetch(kept: Path) -> None:
    with step(f"fetching Debian's {PACKAGE}", about=20), tempfile.TemporaryDirectory(dir=kept.parent, prefix=".browser-") as name:
        folder = Path(name)
        packages = debian.fetch([PACKAGE], folder / "packages", debian.With.WHAT_IS_MISSING, instead="install Chromium")
        debian.unpack(packages, folder / "unpacked")
        if not (folder / "unpacked" / PLACE).exists():
            raise Failure(f"Debian's package {PACKAGE} holds no {PLACE}: install Chromium by hand")
        (folder / "unpacked").rename(kept)
