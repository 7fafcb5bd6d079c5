"""Redaction: what looks like a secret in metadata is not kept. Keys stay, values become "[redacted]".

It looks at metadata, and at what else a client says about its surroundings, never at what was said to a model: that is
the customer's content. A value goes when its key says so or when it looks like a credential itself. Both lists are in
docs/reference/redaction.md, and a test keeps the two together.
"""

import re
from functools import lru_cache
from typing import Any, Final, cast

REDACTED: Final = "[redacted]"

KEYS: Final = (
    r"api[-_]?key",
    r"secret",
    r"passw(or)?d",
    r"passphrase",
    r"credential",
    r"authorization",
    r"cookie",
    r"private[-_]?key",
    r"access[-_]?key",
    r"(access|auth|bearer|refresh|id|session|api|csrf)[-_]?token$",
    r"^token$",
    r"^auth$",
    r"connection[-_]?string",
    r"^dsn$",
    r"(database|db|redis|broker)[-_]?ur[il]$",
    r"(?-i:^(LANGSMITH|LANGCHAIN)_)",
)
"""Names whose values go, wherever in the name they match; case matters in variables of the environment alone."""

VALUES: Final = (
    r"\bsk-[A-Za-z0-9_-]{16,}",
    r"\bsk_(live|test)_[A-Za-z0-9]{16,}",
    r"\bls(v2)?__?(pt|sk)?_[A-Za-z0-9_]{16,}",
    r"\b(ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{20,}",
    r"\bgithub_pat_[A-Za-z0-9_]{20,}",
    r"\bglpat-[A-Za-z0-9_-]{16,}",
    r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    r"\bhf_[A-Za-z0-9]{20,}",
    r"\b(AKIA|ASIA)[0-9A-Z]{16}\b",
    r"\bAIza[0-9A-Za-z_-]{30,}",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    r"\b[a-z][a-z0-9+.-]{0,30}://[^/\s:@]{0,300}:[^/\s@]{1,300}@",
    r"(?i)\bbearer\s+[A-Za-z0-9._~+/-]{16,}",
)
"""Values that go whole, whatever their name."""

_KEY = re.compile("|".join(f"(?:{pattern})" for pattern in KEYS), re.IGNORECASE)
_VALUE = re.compile("|".join(f"(?:{pattern})" for pattern in VALUES if not pattern.startswith("(?i)")))
_BEARER = re.compile(next(pattern for pattern in VALUES if pattern.startswith("(?i)")))
_LONGEST: Final = 20_000
"""Characters of a value that are looked at: credentials are short, and stand near the beginning."""


def redact(value: Any, names: frozenset[str] = frozenset()) -> Any:
    """The same bag without what looks like a secret; the very same object where there is nothing to hide.

    `names` are further names, in small letters, whose values go whatever they are.
    """
    if isinstance(value, dict):
        bag = cast("dict[str, Any]", value)
        changed = {key: new for key, old in bag.items() if (new := _entry(key, old, names)) is not old}
        return {**bag, **changed} if changed else bag
    if isinstance(value, list):
        items = cast("list[Any]", value)
        new_items = [redact(item, names) for item in items]
        return new_items if any(new is not old for new, old in zip(new_items, items, strict=True)) else items
    if isinstance(value, str) and len(value) >= 8 and _looks_secret(value):
        return REDACTED
    return value


def _entry(key: str, value: Any, names: frozenset[str]) -> Any:
    if names and key.lower() in names and value is not None:
        return value if value == REDACTED else REDACTED
    if _secret_name(key) and value not in (None, "", False, True) and not isinstance(value, int | float):
        return value if value == REDACTED else REDACTED
    return redact(value, names)


@lru_cache(maxsize=10_000)
def _secret_name(key: str) -> bool:
    """Remembered, since names come again with every span."""
    return _KEY.search(key) is not None


def _looks_secret(text: str) -> bool:
    seen = text[:_LONGEST]
    return _VALUE.search(seen) is not None or _BEARER.search(seen) is not None
