"""How much of each of some texts can be found in what was written, by words, and which of them it cites. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

# Nothing stands between the words of Chinese, Japanese and Korean: there every character is one.
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
_NUMBERS = re.compile(r"\[\s*(\d{1,4}(?:\s*[,;]\s*\d{1,4})*)\s*\]")


def words(text: str) -> list[str]:
    """The words of a text, without case and punctuation.

    Examples:
        >>> words("Ada's train: 9:40 to Brno")
        ['ada', 's', 'train', '9', '40', 'to', 'brno']
    """
    return _WORD.findall(text.casefold())


def containments(written: str, texts: Sequence[str], question: str = "") -> list[float]:
    """The share of each text's telling words that stand in what was written, in [0, 1].

    With W the words of what was written, T_i those of text i without those of the question, k the number of texts and d(w)
    the number of texts that have the word w: `sum of ln(k / d(w)) over T_i and W / the same sum over T_i`. A word that all
    texts have tells nothing, and so does one that only repeats the question. A text that has no telling word gets 0.

    References:
        Broder (1997), On the resemblance and containment of documents. Weights: Sparck Jones (1972), A statistical
        interpretation of term specificity. Words that are rare among the sources tell best which one an answer was made
        from: Shuster et al. (2021), Retrieval augmentation reduces hallucination in conversation, "rare F1".

    Examples:
        >>> shown = ["Ada lives in Brno.", "Ada lives in Oslo.", "Ada likes tea."]
        >>> [round(c, 2) for c in containments("In Brno, I think.", shown, "Where does Ada live?")]
        [0.79, 0.21, 0.0]
    """
    asked, found = set(words(question)), set(words(written))
    own = [set(words(text)) - asked for text in texts]
    having = Counter(word for mine in own for word in mine)
    tells = {word: math.log(len(texts) / count) for word, count in having.items()}

    def share(mine: set[str]) -> float:
        whole = math.fsum(tells[w] for w in sorted(mine))
        return math.fsum(tells[w] for w in sorted(mine & found)) / whole if whole else 0.0

    return [share(mine) for mine in own]


def cited_ids(written: str, ids: Sequence[str]) -> list[str]:
    """Those ids that stand in a text as they are, and not as a part of a longer word.

    Examples:
        >>> cited_ids("As [note-7] says, and note-12.", ["note-1", "note-7", "note-12"])
        ['note-7', 'note-12']
    """
    return [i for i in ids if i and re.search(rf"(?<![\w-]){re.escape(i)}(?![\w-])", written)]


def cited_numbers(written: str) -> set[int]:
    """The numbers in square brackets, alone or several.

    Examples:
        >>> sorted(cited_numbers("It is so [2], and more [1, 4]; not [see 3]."))
        [1, 2, 4]
    """
    lists = _NUMBERS.findall(written)
    return {int(n) for listed in lists for n in re.split(r"[,;]", listed)}
