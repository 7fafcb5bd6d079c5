"""`completion`: print the completion script of a shell."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from lockstitch.cli.options import examples
from lockstitch.cli.session import session_of

app = typer.Typer()

SCRIPTS = {
    "bash": r"""_lockstitch() {
    local IFS=$'\n'
    COMPREPLY=($(lockstitch --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f 1))
}
complete -o default -F _lockstitch lockstitch""",
    "zsh": r"""#compdef lockstitch
_lockstitch() {
    local line
    local -a described
    for line in "${(@f)$(lockstitch --complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] && described+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    if (( $#described )); then _describe lockstitch described; else _files; fi
}
compdef _lockstitch lockstitch""",
    "fish": r"""function __lockstitch_complete
    set -l words (commandline -opc) (commandline -ct)
    lockstitch --complete $words[2..-1] 2>/dev/null
end
complete -c lockstitch -a '(__lockstitch_complete)'""",
}
"""Scripts that ask `lockstitch --complete WORD…` for the candidates of the last word."""


class Shell(StrEnum):
    """The shells with a script."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


@app.command(
    epilog=examples(
        "lockstitch completion bash >> ~/.bashrc",
        "lockstitch completion zsh >> ~/.zshrc",
        "lockstitch completion fish > ~/.config/fish/completions/lockstitch.fish",
    )
)
def completion(
    context: typer.Context,
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.", show_default=False)],
) -> None:
    """Print the completion script of a shell.

    It completes commands, options and the keys of threads. The zsh script belongs after `compinit`.
    """
    out = session_of(context).out
    if out.as_json:
        out.json({"shell": shell.value, "script": SCRIPTS[shell]})
    else:
        # Not wrapped at a terminal.
        sys.stdout.write(f"{SCRIPTS[shell]}\n")
