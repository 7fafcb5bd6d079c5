"""`tools/browser.py`: the choice of the browser for page tests, and the behaviour without one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import browser

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH. Playwright has downloaded nothing, and its download server refuses connections."""
    monkeypatch.setattr(browser, "HEADLESS_PROGRAM", tmp_path / "lib" / browser.HEADLESS)
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "downloads"))
    monkeypatch.setenv("PLAYWRIGHT_DOWNLOAD_HOST", "http://127.0.0.1:9")
    monkeypatch.delenv(browser.VARIABLE, raising=False)
    return folder


def write_program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def pretend_to_be(monkeypatch: pytest.MonkeyPatch, folder: Path, system: str, user: int) -> None:
    release = folder / "os-release"
    release.write_text(f"NAME=Something\nID={system}\n")
    monkeypatch.setattr(browser, "OS_RELEASE", release)
    monkeypatch.setattr(os, "geteuid", lambda: user)


def fake_apt_get(programs: Path, log: Path, package: str = "chromium") -> None:
    """An apt-get that writes its arguments to a log and has one package: a browser that starts."""
    program = programs / package
    write_program(
        programs / "apt-get",
        f'echo "$@" >> {log}\n'
        f'case "$*" in *install*" {package}") echo "#!/bin/sh" > {program}; /bin/chmod 755 {program};; esac',
    )


def test_finds_browser_on_path(programs: Path) -> None:
    chrome = write_program(programs / "google-chrome", "exit 0")
    assert browser.ensure() == str(chrome)


def test_environment_variable_wins_over_path(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(programs / "chromium", "exit 0")
    chosen = write_program(tmp_path / "mine", "exit 0")
    monkeypatch.setenv(browser.VARIABLE, str(chosen))
    assert browser.ensure() == str(chosen)


def test_rejects_environment_variable_that_names_no_program(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(programs / "chromium", "exit 0")
    monkeypatch.setenv(browser.VARIABLE, "/nowhere/chromium")
    with pytest.raises(browser.NoBrowser, match="LOCKSTITCH_CHROMIUM is /nowhere/chromium, which is not a program"):
        browser.ensure()


@pytest.mark.parametrize(("package", "attempts"), [(browser.HEADLESS, 1), ("chromium", 2)])
def test_installs_with_apt_get_on_debian_as_root(
    package: str, attempts: int, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_to_be(monkeypatch, tmp_path, "debian", user=0)
    fake_apt_get(programs, tmp_path / "log", package)
    assert browser.ensure() == str(programs / package)
    update, *installs = (tmp_path / "log").read_text().splitlines()
    assert update == "update"
    assert [install.split()[:2] for install in installs] == [["install", "--yes"]] * attempts


def test_prefers_browser_without_a_window(programs: Path) -> None:
    write_program(programs / "chromium", "exit 0")
    headless = write_program(programs / browser.HEADLESS, "exit 0")
    assert browser.ensure() == str(headless)


def test_starts_the_program_behind_the_script_of_debian(programs: Path) -> None:
    write_program(programs / browser.HEADLESS, "exit 1")
    browser.HEADLESS_PROGRAM.parent.mkdir()
    write_program(browser.HEADLESS_PROGRAM, "exit 0")
    assert browser.ensure() == str(browser.HEADLESS_PROGRAM)


@pytest.mark.parametrize(("system", "user"), [("debian", 1000), ("ubuntu", 0), ("fedora", 0)])
def test_downloads_with_playwright_elsewhere(
    system: str, user: int, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_to_be(monkeypatch, tmp_path, system, user)
    fake_apt_get(programs, tmp_path / "log")

    interpreter = write_program(
        tmp_path / "python",
        f'echo "$@" >> {tmp_path / "asked"}\nprintf "#!/bin/sh\\n" > {programs / "chromium"}\n'
        f"/bin/chmod 755 {programs / 'chromium'}",
    )
    monkeypatch.setattr(sys, "executable", str(interpreter))
    assert browser.ensure() == str(programs / "chromium")
    assert (tmp_path / "asked").read_text() == "-m playwright install chromium\n"
    assert not (tmp_path / "log").exists()


def test_rejects_browser_that_does_not_start(programs: Path) -> None:
    write_program(programs / "chromium", "echo 'error while loading shared libraries: libnss3.so' >&2; exit 127")
    with pytest.raises(browser.NoBrowser, match=r"does not start \(error while loading shared libraries: libnss3"):
        browser.ensure()


def test_make_test_stops_before_the_first_test_without_browser(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real recipe of the Makefile, on a machine where every installation fails."""
    # Playwright repeats a failed download several times, but not the creation of a folder.
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", "/dev/null/downloads")
    for name in ("make", "sh", "env"):
        real = next(Path(folder, name) for folder in ("/usr/bin", "/bin") if Path(folder, name).exists())
        (programs / name).symlink_to(real)
    write_program(programs / "apt-get", "exit 100")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "MAKE"))}
    done = subprocess.run(
        # The environment of this test is never installed again, also if pyproject.toml is newer.
        ["make", "-o", ".venv/.installed", "test", "ARGS=--collect-only"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode != 0
    assert "pytest" not in done.stdout
    (sentence,) = [line for line in done.stderr.splitlines() if "page tests need a browser" in line]
    assert "set LOCKSTITCH_CHROMIUM" in sentence
