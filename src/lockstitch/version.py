"""The version of this code, where every floor can read it."""

from typing import Final

VERSION: Final = "0.1.0"
