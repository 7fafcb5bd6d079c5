"""The story of the demonstration, in real processes that are really killed."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lockstitch.cli.demo import shop
from lockstitch.errors import LockstitchError
from lockstitch.model import InDoubtWait, parse_waits

THREAD: Final = "order-4711"
PATIENCE: Final = 90.0
"""Seconds in which a model is expected to come to the payment."""


class NotToldAsPlanned(LockstitchError):
    """The demonstration did not go as it was planned."""


@dataclass
class Story:
    """One telling, in a folder of its own."""

    folder: Path
    model: str | None
    quiet: bool

    @property
    def _bank(self) -> Path:
        return self.folder / "bank.jsonl"

    def tell(self) -> dict[str, Any]:
        """Tell it all; the facts in the end."""
        self._bank.touch()
        self._say("An agent settles an order. Every step of it is committed before the next begins.")
        pid = self._kill_in_the_middle()
        self._say(
            f"kill -9 {pid}, while it charged the card: the bank has done it, but its answer never arrived.",
            "What the record knows:",
        )
        self._look("threads")
        self._say(
            "Another process goes on at once: the holder is provably dead, so there is no lease to wait for.",
            "It repeats nothing that is recorded. And `charge` is declared to happen once, so it asks:",
        )
        began = time.monotonic()
        self._show("resume", THREAD, code=4)
        seconds = time.monotonic() - began
        self._say("Somebody looks into the books of the bank and settles the doubt. The thread goes on:")
        for call in self._doubts():
            self._show("settle", THREAD, call, "--done", "charged 42 EUR, says the bank")
        self._say("The record: what was said, what was done and when, what it cost, and that it is sound.")
        turns = self._ask("history", THREAD)
        self._look("history", THREAD)
        self._look("log", str(turns[0]["run_id"]))
        self._look("show", THREAD)
        self._show("doctor", "--verify")
        charges = self._charges()
        if charges != 1:
            raise NotToldAsPlanned(f"The card was charged {charges} times.")
        self._say(f"Killed in the middle of a payment, gone on with after {seconds:.1f} s, and charged exactly once.")
        overview = self._ask("threads")[0]
        return {
            "ok": True,
            "thread_id": overview["id"],
            "model": self.model or "scripted",
            "charges": charges,
            "seconds_to_go_on": round(seconds, 3),
            "total_cost": overview["total_cost"],
        }

    def _kill_in_the_middle(self) -> int:
        command = ["run", "clerk", shop.QUESTION, "--thread", THREAD]
        self._prompt(command)
        with self._process(command, shop_seconds=PATIENCE) as process:
            try:
                until = time.monotonic() + PATIENCE
                while not self._charges():
                    if process.poll() is not None:
                        raise NotToldAsPlanned("The model came to an end without charging the card; try it again.")
                    if time.monotonic() > until:
                        raise NotToldAsPlanned(f"The model did not charge the card within {PATIENCE:.0f} seconds.")
                    time.sleep(0.02)
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait()
            return process.pid

    def _doubts(self) -> list[str]:
        waits = parse_waits(self._ask("show", THREAD)["waiting_for"])
        return [str(wait.call_id) for wait in waits if isinstance(wait, InDoubtWait)]

    def _charges(self) -> int:
        return len(self._bank.read_text().splitlines())

    # Commands

    def _show(self, *command: str, code: int = 0) -> None:
        """A command as a person types it, with its answer."""
        self._prompt(command)
        with self._process(command) as process:
            try:
                if process.wait() != code:
                    raise NotToldAsPlanned(f"`lockstitch {shlex.join(command)}` ended with {process.returncode}.")
            finally:
                # Whoever is interrupted leaves nobody behind who still writes.
                process.kill()

    def _look(self, *command: str) -> None:
        """A command that changes and checks nothing: left out where nobody sees its answer."""
        if not self.quiet:
            self._show(*command)

    def _ask(self, *command: str) -> Any:
        """A command as a program uses it."""
        line = [*self._command(command), "--json"]
        done = subprocess.run(line, env=self._environment(), check=True, stdout=subprocess.PIPE)
        return json.loads(done.stdout)

    def _process(self, command: Sequence[str], shop_seconds: float = 0.0) -> "subprocess.Popen[bytes]":
        where = subprocess.DEVNULL if self.quiet else sys.stdout.fileno()
        environment = {**self._environment(), shop.SECONDS: str(shop_seconds)}
        return subprocess.Popen(self._command(command), env=environment, stdout=where, stderr=where)

    @staticmethod
    def _command(command: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "lockstitch", *command]

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "LOCKSTITCH_STORE": f"sqlite:////{str(self.folder).lstrip('/')}/shop.db",
            "LOCKSTITCH_APP": "lockstitch.cli.demo.shop:app",
            shop.BANK: str(self._bank),
            shop.MODEL: self.model or "",
        }

    # Telling

    def _say(self, *lines: str) -> None:
        if not self.quiet:
            sys.stdout.write("\n" + "\n".join(f"# {line}" for line in lines) + "\n")
            sys.stdout.flush()

    def _prompt(self, command: Sequence[str]) -> None:
        if not self.quiet:
            sys.stdout.write(f"$ lockstitch {shlex.join(command)}\n")
            sys.stdout.flush()
