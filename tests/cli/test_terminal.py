"""Output on a terminal with 80 columns."""

import fcntl
import json
import os
import re
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from lockstitch.model import short_id
from tests.cli.calling import environment, run
from tests.cli.story import Story, long_chat, tell, within
from tests.docs.warm import warm_commands

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


# One start of Python for many commands.
ONE_AFTER_ANOTHER = """
import json, sys
from lockstitch.cli.entry import run
for line in sys.argv[1:]:
    assert run(json.loads(line)) == 0, line
    print("\\f", flush=True)
"""


def run_in_terminal(*arguments: str, keys: str = "", columns: int = 80, **more: str) -> tuple[int, str]:
    """Return the exit code and the screen of a command at a terminal. `keys` are typed."""
    return run_commands_in_terminal(["-m", "lockstitch", *arguments], keys=keys, columns=columns, **more)


def run_commands_in_terminal(program: list[str], *, keys: str = "", columns: int = 80, **more: str) -> tuple[int, str]:
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    plain = {name: value for name, value in environment().items() if name not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    with subprocess.Popen(
        [warm_commands() / "python", *program],
        env={**plain, "TERM": "xterm-256color", **more},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    ) as process:
        os.close(slave)
        os.write(master, keys.encode())
        screen = b""
        while chunk := _read(master):
            screen += chunk
        code = process.wait(60)
    os.close(master)
    return code, screen.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        # A closed terminal ends with this error.
        return b""


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return tell(f"sqlite:///{tmp_path / 'store.db'}")


def test_output_fits_terminal_and_ids_are_complete(story: Story) -> None:
    commands = (
        *(["threads"], ["threads", "--tree"], ["threads", "--all-projects"], ["show", "customer-42"], ["errors"]),
        *(["history", "customer-42"], ["context", "customer-42"], ["log", str(story.charge.id)], ["tail"], ["size"]),
        *(["show", str(story.charge.id)], ["search", "graz"], ["stats", "tokens"], ["doctor", "--verify"]),
        *(["sql", "SELECT id, title, goal, settings, created_at FROM threads"],),
    )
    arguments = [json.dumps([*command, "--store", story.url]) for command in commands]
    code, screens = run_commands_in_terminal(["-c", ONE_AFTER_ANOTHER, *arguments])
    assert code == 0, screens
    for command, screen in zip(commands, screens.split("\f\n")[:-1], strict=True):
        assert "\x1b[" in screen, command
        lines = COLOUR.sub("", screen).split("\n")
        assert max(map(len, lines)) <= 80, (command, screen)
        if command[0] in ("threads", "stats"):
            assert any(line.startswith(f"{short_id(story.chat.id)}  ") for line in lines), command
        if command[0] == "sql":
            assert any(line.startswith(str(story.chat.id)) for line in lines), command


def test_wide_terminal_shows_more_columns(story: Story) -> None:
    narrow, wide = (
        COLOUR.sub("", run_in_terminal("threads", "--store", story.url, columns=columns)[1]) for columns in (80, 140)
    )
    assert "AGENT" not in narrow
    assert "helper v3" in wide


def test_no_colour_and_pipes_disable_colours(story: Story) -> None:
    assert "\x1b[3" not in run_in_terminal("threads", "--store", story.url, NO_COLOR="1")[1]
    assert "\x1b" not in run("threads", "--store", story.url).out


def test_json_at_terminal_has_no_colours(story: Story) -> None:
    assert "\x1b" not in run_in_terminal("threads", "--json", "--store", story.url)[1]


def test_several_threads_are_shown_before_confirmation(story: Story) -> None:
    names = ("customer-42", short_id(story.goal.id))
    code, screen = run_in_terminal("delete", *names, "--store", story.url, keys="n\n")
    assert code == 1
    assert "customer-42" in screen
    assert "Delete 2 threads and 2 descendants? [y/N]" in screen
    assert screen.endswith("Nothing was changed.\n")


def test_delete_asks_for_confirmation(story: Story) -> None:
    code, screen = run_in_terminal("delete", "customer-42", "--store", story.url, keys="no\n")
    assert code == 1
    assert f"Delete thread {story.chat.id} (customer-42)? [y/N]" in screen
    assert "Nothing was deleted." in screen
    assert run_in_terminal("delete", "customer-42", "--store", story.url, keys="\x04")[0] == 1, (
        "end of input is not a yes"
    )
    code, screen = run_in_terminal("delete", str(story.goal.id), "--store", story.url, keys="y\n")
    assert code == 0
    assert "and 2 descendants?" in screen
    assert "Deleted 3 threads." in screen
    code, screen = run_in_terminal("purge", "--older-than", "0s", "--store", story.url, keys="yes\n")
    assert (code, "Deleted 1 thread." in screen) == (0, True)


def test_copy_shows_progress(tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path / 'source.db'}"
    within(source, lambda store: long_chat(store, 5))
    code, screen = run_in_terminal("copy", source, f"sqlite:///{tmp_path / 'target.db'}")
    assert code == 0
    assert "Copied 10 stitches and 6 other records; verified 1 of 1 thread." in screen
