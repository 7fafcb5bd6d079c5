"""What a run does, told as it happens: the answer on stdout, everything about it on stderr."""

from typing import TYPE_CHECKING, Any

from rich.text import Text

from lockstitch.cli import messages, streams
from lockstitch.cli.output import Output
from lockstitch.cli.text import cost, one_line, plural, safe
from lockstitch.records import Json

if TYPE_CHECKING:
    from lockstitch.runtime import Event


class Teller:
    """Tells people of one run after the other. Programs are told of the result alone, and not by this."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._silent = out.as_json
        self._open_line = False

    def tell(self, event: "Event") -> None:
        """Tell of one event. A reader that has gone away is no reason to leave a run in the middle."""
        if self._silent or (event.member and event.type == "text"):
            # What a member says is for its leader, and shown as what came of the call that asked for it.
            return
        try:
            self._tell(event.type, event.data)
        except BrokenPipeError:
            streams.abandon()
            self._silent = True

    def end_line(self) -> None:
        """Begin a new line, if the answer has not ended with one."""
        if self._open_line:
            self._out.stream("\n")
            self._open_line = False

    def aside(self, text: str | Text, style: str = "dim") -> None:
        """Something about the answer, on a line of its own."""
        if not self._silent:
            self.end_line()
            self._out.aside(Text(safe(text), style=style) if isinstance(text, str) else text)

    def _tell(self, kind: str, data: Json) -> None:
        match kind:
            case "text":
                text = str(data.get("text", ""))
                self._out.stream(text)
                self._open_line = not text.endswith("\n") if text else self._open_line
            case "tool_call" | "server_tool_call":
                self.aside(messages.part({**data, "type": "tool_use"}))
            case "tool_result" | "server_tool_result":
                self.aside(messages.part({**data, "type": "tool_result"}))
            case "retry":
                self.aside(f"… {one_line(str(data.get('message')))} Trying again in {data.get('delay')} s.", "yellow")
            case "compacted":
                self.aside(f"… compacted from {data.get('tokens_before')} to {data.get('tokens_after')} tokens")
            case "files":
                for file in data.get("files", []):
                    self.aside(f"… file {one_line(str(file.get('filename')))}")
            case _:
                pass


def sums(result: Json, total: float | None = None) -> str:
    """What a run took, on one line; with what its whole thread cost so far."""
    usage: dict[str, Any] = result["usage"]
    parts = [
        plural(int(result["steps"]), "step"),
        f"{usage['input_tokens']:,} tokens in, {usage['output_tokens']:,} out",
        cost(result["total_cost"]),
        f"{cost(total)} in all" if total is not None else "",
    ]
    return " · ".join(part for part in parts if part)
