"""`safe` and `one_line`: text without control characters."""

_UNSHOWN = "\N{REPLACEMENT CHARACTER}"
# The output of a tool can contain escape sequences that change the screen, or characters that change the direction
# of text. They are replaced by visible symbols.
_CONTROLS = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    **dict.fromkeys(range(0x7F, 0xA0), _UNSHOWN),
    **dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), _UNSHOWN),
}


def safe(text: str) -> str:
    """Return `text` without control characters. Line breaks stay, tabs become spaces."""
    return text.translate(_CONTROLS).expandtabs(4)


def one_line(text: str | None) -> str:
    return " ".join(safe(text or "").split())
