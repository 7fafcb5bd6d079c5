"""`read_list`: the tasks of a Markdown or CSV file."""

from collections.abc import Sequence
from pathlib import PurePath

from lockstitch.apps.prioritizer.list_csv import read_csv
from lockstitch.apps.prioritizer.list_markdown import read_markdown
from lockstitch.apps.prioritizer.lists import TaskList, as_text, build_list


def read_list(content: bytes | str, name: str, taken: Sequence[str] = ()) -> TaskList:
    """Return the tasks of a file. It is read as CSV if its name ends in .csv or .tsv, otherwise as Markdown.

    `taken` are ids that other documents have. Raises Refused with the line if the file cannot be understood.
    """
    text = as_text(content, name)
    title = PurePath(name).stem or "Tasks"
    sheets = read_csv(text, title, name) if name.lower().endswith((".csv", ".tsv")) else read_markdown(text, title)
    return build_list(sheets, name, taken)
