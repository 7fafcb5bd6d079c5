"""`Environment`: a separate Python environment of one peer, in build/peers. The pins of peers exclude each other."""

import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

FOLDER = ROOT / "build/peers"

VERSIONS: dict[str, list[str]] = tomllib.loads((Path(__file__).parent / "versions.toml").read_text())


@dataclass(frozen=True)
class Environment:
    """The environment of one peer."""

    name: str
    packages: tuple[str, ...]
    """Requirements with versions. The first one is the peer."""
    folder: Path = FOLDER

    @classmethod
    def of(cls, name: str) -> "Environment":
        """Return the environment of a peer in versions.toml."""
        return cls(name, tuple(VERSIONS[name]))

    @property
    def home(self) -> Path:
        return self.folder / self.name

    @property
    def python(self) -> str:
        return str(self.home / "bin/python")

    @property
    def version(self) -> str:
        """Version of the peer."""
        return self.packages[0].partition("==")[2]

    @property
    def is_installed(self) -> bool:
        """True if the environment is complete and has these packages."""
        return self._stamp.exists() and self._stamp.read_text().splitlines() == list(self.packages)

    @property
    def variables(self) -> dict[str, str]:
        """Variables for its processes. Packages of Lockstitch's environment must not come before those of the peer."""
        return {**os.environ, "PYTHONPATH": str(ROOT)}

    def install(self) -> bool:
        """Install the packages if they are not installed. Return False if that fails, for example without a network."""
        if self.is_installed:
            return True
        print(f"installing {self.name} into {self.home}", file=sys.stderr, flush=True)
        shutil.rmtree(self.home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.home)], check=True)
        # As in the Makefile: uv is faster, and pip works with more settings of package indexes.
        commands = (
            ("uv", "pip", "install", "--quiet", "--python", self.python),
            ("pip", "--quiet", "--python", self.python, "install", "--disable-pip-version-check", "--retries=1"),
        )
        variables = {**os.environ, "UV_NATIVE_TLS": "1"}
        if not any(
            subprocess.run([sys.executable, "-m", *command, *self.packages], env=variables, check=False).returncode == 0
            for command in commands
        ):
            return False
        self._stamp.write_text("\n".join(self.packages))
        return True

    @property
    def _stamp(self) -> Path:
        return self.home / "installed"
