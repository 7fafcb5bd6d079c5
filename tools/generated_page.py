"""`write_or_check`: the command line of tools that generate a page or a part of it."""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def write_or_check(path: Path, text: str, tool: str) -> None:
    """Write the page, or with `--check` exit 1 if it is not current.

    Args:
        path: File of the page.
        text: Current text of the page.
        tool: Module that generates it, for the message.
    """
    name = path.relative_to(ROOT)
    parser = argparse.ArgumentParser(description=f"Write {name}.")
    parser.add_argument("--check", action="store_true", help="exit 1 if the page is not current")
    if not parser.parse_args().check:
        path.write_text(text, encoding="utf-8")
    elif not path.exists() or path.read_text(encoding="utf-8") != text:
        sys.exit(f"{name} is not current. Run: python -m {tool}")
