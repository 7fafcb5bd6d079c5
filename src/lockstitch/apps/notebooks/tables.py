"""The tables of notebooks in a store."""

from typing import Final

from lockstitch.apps.notebooks.records import KINDS
from lockstitch.extension import Extension

EXTENSION: Final = Extension("notebooks", "lockstitch.apps.notebooks.sql", KINDS)
