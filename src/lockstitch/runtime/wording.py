"""What others say, in words that every store can keep."""

import re
from typing import Final

_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def keepable(text: str) -> str:
    """`text`, with a replacement character for each lone surrogate."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def message_of(problem: BaseException) -> str:
    """What an exception says; its kind where it says nothing."""
    try:
        said = str(problem)
    except Exception:  # an exception whose text cannot be made is still one
        said = ""
    return keepable(said) or type(problem).__name__
