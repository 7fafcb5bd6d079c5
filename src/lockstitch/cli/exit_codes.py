"""`ExitCode`: all exit codes of the command line, with their meanings."""

from enum import IntEnum


class ExitCode(IntEnum):
    """An exit code. `meaning` describes it for the help text and the documentation."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> "ExitCode":
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    OK = 0, "The command succeeded."
    FAILED = 1, "The command failed, the run failed or was cancelled, a check found a problem, or the user declined."
    USAGE = 2, "An option or argument is not valid, a name is ambiguous, or a confirmation is missing."
    NOT_FOUND = 3, "The thread, run, file or agent does not exist."
    WAITING = 4, "The thread waits for a reply, another worker holds it, or another writer was first."
    STORE = 5, "The store is unreachable, damaged, full, read-only, or of another version."
    PARTLY = 6, "A part succeeded: some of several threads, files or cases failed."
    INTERRUPTED = 130, "A signal or Ctrl-C interrupted the command. The threads that it held were released."


def of_several(succeeded: int, failed: int) -> ExitCode:
    """Return the exit code of a command that acted on several threads."""
    if not failed:
        return ExitCode.OK
    return ExitCode.PARTLY if succeeded else ExitCode.FAILED
