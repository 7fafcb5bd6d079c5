"""`RunProgress`: progress of runs. `show` and `CaseProgress`: results and progress of an evaluation."""

from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from lockstitch.cli import stdio
from lockstitch.cli.render import messages
from lockstitch.cli.render.markdown import MarkdownStream
from lockstitch.cli.render.output import Output, TableColumn, cost, duration, one_line, plural, safe
from lockstitch.model import Json

if TYPE_CHECKING:
    from lockstitch.agents.evals.results import CaseOutcome, Evaluation

_ALL: Final = 30
"""Up to this number, all cases are shown. Otherwise only failed cases and cases with a changed result."""
_NAMED: Final = 10


def show(out: Output, evaluation: "Evaluation", at_least: float | None, *, everything: bool) -> None:
    """Print the cases of an evaluation, the totals and the comparison with the previous one."""
    fixed, broken = evaluation.changes()
    changed = {**dict.fromkeys(fixed, "better"), **dict.fromkeys(broken, "worse")}
    everything = everything or len(evaluation.outcomes) <= _ALL
    case_outcomes = [
        outcome for outcome in evaluation.outcomes if everything or not outcome.passed or outcome.case in changed
    ]
    columns = [TableColumn("CASE", flexible=True), TableColumn("PASSED"), TableColumn("SCORE", right=True)]
    columns += [TableColumn("TIME", right=True, from_width=60), TableColumn("COST", right=True, from_width=70)]
    if case_outcomes:
        rows = [_row(case_outcome, changed.get(case_outcome.case, "")) for case_outcome in case_outcomes]
        out.table([*columns, TableColumn("REASON", flexible=True)], rows)
        out.line()
    if len(case_outcomes) < len(evaluation.outcomes):
        out.line(
            f"{plural(len(evaluation.outcomes) - len(case_outcomes), 'case')} passed as before; use --all to list.",
            style="dim",
        )
    _sum_up(out, evaluation)
    _compare(out, evaluation, fixed, broken)
    if at_least is not None and evaluation.score < at_least:
        out.line(f"The score {_score(evaluation.score)} is below {at_least:g}.", style="bold red")


def _row(case_outcome: "CaseOutcome", changed: str) -> list[str | Text]:
    word, style = ("yes", "green") if case_outcome.passed else ("no", "red")
    if case_outcome.diverged is not None:
        word, style = "diverged", "yellow"
    mark = Text(f"{word}, {changed}" if changed else word, style=style)
    case = one_line(case_outcome.case)
    return [
        case if case_outcome.trial == 1 else f"{case} ({case_outcome.trial})",
        mark,
        _score(case_outcome.score),
        duration(case_outcome.latency_ms),
        cost(case_outcome.cost),
        one_line(case_outcome.reason),
    ]


def _sum_up(out: Output, evaluation: "Evaluation") -> None:
    totals = evaluation.totals
    title = (
        f"{one_line(evaluation.name)} #{evaluation.number}: {one_line(evaluation.agent)} version {evaluation.version}"
    )
    out.line(f"{title}, graded by {', '.join(evaluation.graders)}", style="bold")
    noun = "case" if evaluation.trials == 1 else "trial"
    text = f"{totals.passed:,} of {plural(totals.trials, noun)} passed, score {_score(totals.score)}"
    if totals.score_interval is not None:
        text += " ({:.3f} to {:.3f})".format(*totals.score_interval)
    if totals.latency_ms is not None:
        text += f", {duration(totals.latency_ms)} a {noun}"
    if totals.cost is not None:
        text += f", {cost(totals.cost)}"
    if totals.grading_cost is not None:
        text += f" and {cost(totals.grading_cost)} for grading"
    out.line(f"{text}.")
    if totals.incomplete:
        out.line(
            f"The runs of {plural(totals.incomplete, noun)} did not complete{diverged(totals.diverged)}.", style="red"
        )
    if evaluation.resumed_cases:
        out.line(f"{plural(evaluation.resumed_cases, 'case')} finished before the interruption.", style="dim")


def diverged(number: int | None) -> str:
    """Return the number of diverged trials, for the end of a sentence."""
    return f", {number:,} of them diverged from the record" if number else ""


def _compare(out: Output, evaluation: "Evaluation", fixed: list[str], broken: list[str]) -> None:
    before = evaluation.previous
    if before is None:
        return
    then, now = before.totals, evaluation.totals
    style = "green" if now.score > then.score else "red" if now.score < then.score else ""
    by = "unchanged" if now.score == then.score else f"{abs(now.score - then.score):.3f} "
    by += "" if now.score == then.score else "better" if now.score > then.score else "worse"
    who = f"{one_line(before.agent)} version {before.version}"
    if list(before.graders) != list(evaluation.graders):
        who += f", graded by {', '.join(before.graders)}"
    if before.dataset != evaluation.dataset:
        who += f", {one_line(before.dataset)}"
    out.line(
        f"Before (#{before.number}, {who}): {then.passed:,} of {then.trials:,}, {_score(then.score)}; {by}.", style
    )
    for word, cases in (("Now pass", fixed), ("No longer pass", broken)):
        if cases:
            suffix = f" and {len(cases) - _NAMED:,} more" if len(cases) > _NAMED else ""
            out.line(f"{word}: {', '.join(map(one_line, cases[:_NAMED]))}{suffix}")


def _score(score: float) -> str:
    return f"{score:.3f}"


class CaseProgress:
    """A progress bar on stderr, only on a terminal."""

    def __init__(self) -> None:
        # Imported here because loading rich.progress is slow and only this class needs it.
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("asking", total=None)
        self._failed = 0

    def __enter__(self) -> "CaseProgress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, outcome: "CaseOutcome", done: int, total: int) -> None:
        """Show the progress after a trial."""
        self._failed += not outcome.passed
        self.show(self._failed, done, total)

    def show(self, failed: int, done: int, total: int) -> None:
        """Show the numbers of trials that did not pass, that are done, and of all."""
        text = f"asking, {failed} did not pass" if failed else "asking"
        self._bar.update(self._task, completed=done, total=total, description=text)


if TYPE_CHECKING:
    from lockstitch.agents import Event


class RunProgress:
    """Prints the progress of runs for people. With `--json`, only the result is printed, elsewhere."""

    def __init__(self, out: Output, *, markdown: bool = False) -> None:
        self._out = out
        self._silent = out.as_json
        self._markdown = MarkdownStream(out.console) if markdown and out.shows_markdown else None
        self._open_line = False
        self._has_events = False
        self._warnings: SimpleQueue[str] = SimpleQueue()

    @property
    def as_json(self) -> bool:
        """True if the result is printed as JSON."""
        return self._out.as_json

    def warn(self, line: str) -> None:
        """Print a line to stderr when no answer is being printed. Safe to call from any thread."""
        self._warnings.put(line)

    def print_warnings(self) -> None:
        """Print the lines of `warn`. It ends the line of an answer if there is one."""
        with suppress(Empty):
            while line := self._warnings.get_nowait():
                self.end_line()
                stdio.print_error(line)

    def on_event(self, event: "Event") -> None:
        """Print one event. If the reader has closed the pipe, the run continues without output."""
        if event.type != "text":
            self.print_warnings()
        if self._silent or (event.member and event.type == "text"):
            # The text of a member goes to its leader. It is printed as the result of the delegating call.
            return
        try:
            if event.type == "finished" and not self._has_events:
                # The run was executed before, or by another process, so its text was not streamed here.
                self._print_event("text", {"text": event.data.get("output_text") or ""})
            self._has_events = True
            self._print_event(event.type, event.data)
        except BrokenPipeError:
            stdio.discard_output()
            self._silent = True

    def end_line(self) -> None:
        """Start a new line if the streamed answer does not end with one."""
        if self._markdown is not None:
            self._markdown.end()
        if self._open_line:
            self._out.stream("\n")
            self._open_line = False

    def aside(self, text: str | Text, style: str = "dim") -> None:
        """Print a separate line about the answer to stderr."""
        if not self._silent:
            self.end_line()
            self._out.stderr_line(Text(safe(text), style=style) if isinstance(text, str) else text)

    def _print_event(self, kind: str, data: Json) -> None:
        match kind:
            case "text":
                text = str(data.get("text", ""))
                if self._markdown is not None:
                    self._markdown.feed(safe(text))
                    return
                self._out.stream(text)
                self._open_line = not text.endswith("\n") if text else self._open_line
            case "tool_call" | "server_tool_call":
                self.aside(messages.part({**data, "type": "tool_use"}))
            case "tool_result" | "server_tool_result":
                self.aside(messages.part({**data, "type": "tool_result"}))
            case "retry" if "message" not in data:
                self.aside("… The answer starts again.", "yellow")
            case "retry":
                self.aside(f"… {one_line(str(data.get('message')))} Next attempt in {data.get('delay')} s.", "yellow")
            case "compacted":
                self.aside(f"… compacted from {data.get('tokens_before')} to {data.get('tokens_after')} tokens")
            case "files":
                for file in data.get("files", []):
                    self.aside(f"… file {one_line(str(file.get('filename')))}")
            case _:
                pass


def sums(result: Json, total: float | None = None) -> str:
    """Return the steps, tokens and cost of a run on one line. `total` is the cost of the whole thread."""
    usage: dict[str, Any] = result["usage"]
    parts = [
        plural(int(result["steps"]), "step"),
        f"{usage['input_tokens']:,} tokens in, {usage['output_tokens']:,} out",
        cost(result["total_cost"]),
        f"{cost(total)} total" if total is not None else "",
    ]
    return " · ".join(part for part in parts if part)
