"""Credit by use: from a finished run to which memories it was made from, by what it wrote.

A rule takes a `Run` and returns ids, a weight for each id, or None for "its output does not tell". None is the honest answer of
every rule here to an output that looks like none of the memories: then `Policy.credit` decides, as without a rule.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_memoryworth.errors import InvalidInputError, RunFailedError
from langchain_memoryworth.estimators.overlap import cited_ids, cited_numbers, containments
from langchain_memoryworth.outcomes.judges import Run, last_turn, text_of
from langchain_memoryworth.service.governor import Governor
from langchain_memoryworth.vectors.unit import unit_rows

Attribution = Callable[[Run], Iterable[str] | Mapping[str, float] | None]
"""A rule: the run in; ids of the memories used out, or a weight for each on any scale, or None if that is not known."""

Output = str | Callable[[Run], str] | None
"""Where what was written stands: a key of the output, a function of the run, or None for `written`."""


def by_citation(by: Literal["id", "number"] = "id", *, output: Output = None) -> Attribution:
    """The memories that are cited in the answer, or in the arguments of a tool call, in equal parts.

    Args:
        by: `id`: the ids stand there as they are, in brackets or not, as in the `<memory id="...">` of a prompt by the
            middleware; or `number`: `[1]`, `[2, 3]`, counted from 1 in the order of `Run.memories`.
        output: Where it is written.

    Examples:
        >>> memories = (Document("Ada lives in Brno.", id="m-1"), Document("Ada likes tea.", id="m-2"))
        >>> by_citation()(Run("r", "r", memories=memories, result="In Brno [m-1]."))
        ['m-1']
        >>> by_citation("number")(Run("r", "r", memories=memories, result="She likes tea [2]."))
        ['m-2']
        >>> by_citation()(Run("r", "r", memories=memories, result="In Brno.")) is None
        True
    """
    if by not in ("id", "number"):
        raise InvalidInputError(f"by={by!r}; give 'id' or 'number'", value=by)

    def used(run: Run) -> list[str] | None:
        ids, text = _ids(run), _read(run, output)
        if by == "id":
            return cited_ids(text, ids) or None
        numbers = cited_numbers(text)
        return [i for n, i in enumerate(ids, start=1) if n in numbers] or None

    return used


def by_words(*, least: float = 0.2, output: Output = None) -> Attribution:
    """Each memory by the share of its telling words that the output has, see `overlap.containments`.

    Args:
        least: Share of the best memory, in [0, 1], below which the output does not tell: words in common by chance.
        output: Where it is written.

    Examples:
        >>> memories = (Document("Ada lives in Brno.", id="a"), Document("Ada likes tea.", id="b"))
        >>> by_words()(Run("r", "r", "qa", "Where does Ada live?", memories=memories, result="She lives in Brno."))
        {'a': 1.0, 'b': 0.0}
        >>> by_words()(Run("r", "r", memories=memories, result="Done.")) is None
        True
    """
    _check_share("least", least)

    def used(run: Run) -> dict[str, float] | None:
        texts = [d.page_content for d in run.memories]
        asked = " ".join(_texts(run.inputs, HumanMessage))
        shares = containments(_read(run, output), texts, asked)
        return _by_id(run, shares) if max(shares, default=0.0) > least else None

    return used


def by_embedding(
    embedding: Embeddings, *, least: float = 0.4, output: Output = None
) -> Attribution:
    """Each memory by how much nearer it is to the output than the memories shown are on average, by cosine.

    Without the mean the weights are all but equal: what was found for one question is alike. It embeds the output and the
    memories, once for each run.

    Args:
        embedding: The model, such as that of the store.
        least: Cosine of the nearest memory, in [0, 1], below which the output does not tell.
        output: Where it is written.

    Examples:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> memories = (Document("Ada lives in Brno.", id="a"), Document("Ada likes tea.", id="b"))
        >>> found = by_embedding(DeterministicFakeEmbedding(size=64))(Run("r", "r", memories=memories, result="Ada likes tea."))
        >>> [i for i, weight in found.items() if weight]
        ['b']
    """
    _check_share("least", least)

    def used(run: Run) -> dict[str, float] | None:
        text = _read(run, output)
        if not text or not run.memories:
            return None
        vectors = unit_rows(
            embedding.embed_documents([text, *(d.page_content for d in run.memories)])
        )
        cosine = vectors[1:] @ vectors[0]
        above = np.maximum(cosine - cosine.mean(), 0.0)
        return _by_id(run, above.tolist()) if cosine.max() > least and above.any() else None

    return used


def written(run: Run) -> str:
    """What a run wrote: its answer, and the arguments of the tools that it called.

    Of an agent's state, what the model wrote in the last turn. Of other outputs all the text in them, but no documents, no
    messages of others and nothing that the run was given.

    Raises:
        RunFailedError: If it raised instead.

    Examples:
        >>> written(Run("r", "r", inputs={"q": "Where?"}, result={"q": "Where?", "answer": "Brno", "docs": [Document("x")]}))
        'Brno'
        >>> call = {"name": "book", "args": {"to": "Brno"}, "id": "1"}
        >>> written(Run("r", "r", result=AIMessage("I book it.", tool_calls=[call])))
        'I book it. {"to": "Brno"}'
    """
    outputs = run.outputs
    if isinstance(outputs, Mapping) and outputs.get("messages"):
        outputs = last_turn(outputs)[1]
    given = set(_texts(run.inputs, HumanMessage))
    return " ".join(t for t in _texts(outputs, AIMessage) if t and t not in given)


def note_use(governor: Governor, rule: Attribution, run: Run) -> None:
    """Ask a rule, and write down in the episode what it says; what it raises is counted."""
    with governor.losses.guard("what a run used"):
        try:
            said = rule(run)
        except RunFailedError:
            return  # it asked for the outputs of a run that has none
        if said is not None:
            governor.journal.mark_used(run.episode_id, said)


def _read(run: Run, output: Output) -> str:
    if output is None:
        return written(run)
    return output(run) if callable(output) else text_of(run.outputs[output])


def _texts(value: Any, who: type[BaseMessage]) -> Iterator[str]:
    """The texts in a value, of messages those of one kind."""
    if isinstance(value, BaseMessage):
        if isinstance(value, who):
            yield text_of(value)
            yield from (_as_text(c["args"]) for c in getattr(value, "tool_calls", ()))
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one, who)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts(one, who)
    elif value is not None and not isinstance(value, Document):
        yield str(value)


def _as_text(arguments: Any) -> str:
    return json.dumps(arguments, ensure_ascii=False, default=str)


def _ids(run: Run) -> list[str]:
    return [d.id or "" for d in run.memories]


def _by_id(run: Run, shares: Iterable[float]) -> dict[str, float]:
    return dict(zip(_ids(run), shares, strict=True))


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise InvalidInputError(f"{name}={value!r}; give a number in [0, 1]", value=value)
