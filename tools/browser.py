"""Find the Chromium that the page tests need, and install one where there is none.

    python -m tools.browser           install a browser if necessary, print its path
    LOCKSTITCH_CHROMIUM=PATH          use this browser and install nothing

`make test` and `make check` run this before the first test.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

VARIABLE: Final = "LOCKSTITCH_CHROMIUM"
HEADLESS: Final = "chromium-headless-shell"
"""The same engine without a window. The page tests take a third less time with it."""
HEADLESS_PROGRAM: Final = Path("/usr/lib/chromium/chromium-headless-shell")
"""The command of Debian is a script that starts this program as a child. A signal to the script does not end it."""
NAMES: Final = (HEADLESS, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OS_RELEASE: Final = Path("/etc/os-release")

_ADVICE: Final = f"install Chromium (Debian: apt-get install chromium) or set {VARIABLE} to the path of one."


class NoBrowser(Exception):
    """No usable browser was found. The message is one sentence that says what to do."""


def find() -> str | None:
    """Return the path of a browser, or None if there is none.

    The environment variable decides if it is set. Then come the browsers on PATH, then the one that Playwright
    downloaded. Raises `NoBrowser` if the environment variable names a program that does not exist. Must not be called
    in a thread with a running event loop.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen:
        path = shutil.which(chosen)
        if path is None:
            raise NoBrowser(f"{VARIABLE} is {chosen}, which is not a program: name another or unset it.")
        return path
    path = next(filter(None, map(shutil.which, NAMES)), None) or _downloaded()
    return str(HEADLESS_PROGRAM) if path and Path(path).name == HEADLESS and HEADLESS_PROGRAM.exists() else path


def ensure() -> str:
    """Return the path of a browser that starts. Install one if there is none.

    Raises `NoBrowser` if the installation fails or the browser does not start.
    """
    path = find()
    if path is None:
        _install()
        path = find()
    if path is None:
        raise NoBrowser(f"The page tests need a browser, and none could be installed: {_ADVICE}")
    _check_that_it_starts(path)
    return path


def _downloaded() -> str | None:
    """Return the path of Playwright's own Chromium if it was downloaded."""
    # Playwright is imported here because it takes time that a browser on PATH saves.
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def _install() -> None:
    """Try the package manager of Debian, then Playwright's download. A failure shows in their output and in `find`."""
    if _is_debian() and os.geteuid() == 0 and shutil.which("apt-get"):
        print("Chromium is missing. Installing it with apt-get.", file=sys.stderr, flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        install = ("apt-get", "install", "--yes", "--no-install-recommends", "fonts-dejavu-core")
        # Not every release of Debian has the first package.
        for commands in ((("apt-get", "update"), (*install, HEADLESS)), ((*install, "chromium"),)):
            for command in commands:
                subprocess.run(command, env=environment, stdout=sys.stderr, stdin=subprocess.DEVNULL, check=False)
            if find() is not None:
                return
    print("Chromium is missing. Downloading the one of Playwright.", file=sys.stderr, flush=True)
    download = (sys.executable, "-m", "playwright", "install", "chromium")
    subprocess.run(download, stdout=sys.stderr, stdin=subprocess.DEVNULL, check=False)


def _is_debian() -> bool:
    """True on Debian itself. The chromium package of Ubuntu only starts a snap, which containers do not have."""
    try:
        lines = OS_RELEASE.read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return "ID=debian" in lines


def _check_that_it_starts(path: str) -> None:
    """Raise `NoBrowser` if the program does not print its version, for example because libraries are missing."""
    try:
        done = subprocess.run((path, "--version"), capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoBrowser(f"The browser {path} does not start ({error}): {_ADVICE}") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise NoBrowser(f"The browser {path} does not start ({last}): {_ADVICE}")


def main() -> None:
    try:
        print(ensure())
    except NoBrowser as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
