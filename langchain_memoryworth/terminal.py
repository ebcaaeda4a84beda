"""Stored text on a terminal: what would move the cursor, change colours or turn the writing round is shown as an escape."""

from __future__ import annotations

import unicodedata

_HARMLESS = frozenset(" ")
_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean(text: object, *, width: int | None = None) -> str:
    r"""Text as one line without control characters, format characters and lone surrogates.

    Args:
        text: Anything; it is turned into a string.
        width: Longest result in characters; None means as long as it is.

    Examples:
        >>> print(clean("red \x1b[31m alert\n"))
        red \x1b[31m alert\n
        >>> print(clean("a\u202eb"), clean("abcdef", width=4))
        a\u202eb abc…
    """
    whole = "".join(c if _is_plain(c) else _escaped(c) for c in str(text))
    return whole if width is None or len(whole) <= width else whole[: width - 1] + "…"


def _is_plain(character: str) -> bool:
    return character in _HARMLESS or unicodedata.category(character) not in _CATEGORIES


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
