"""Evaluators of other packages as outcome functions: LangChain's, openevals', agentevals', RAGAS' and one's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import numpy as np
from langchain_core.runnables import Runnable

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.outcomes.judges import Judgement, OutcomeFunction, Run, text_of
from langchain_memoryworth.records import Outcome


def evaluator(
    judge: Any,
    read: Callable[[Any], Judgement] | None = None,
    *,
    metric: str | None = None,
    reference: Any = None,
) -> OutcomeFunction:
    """Ask an evaluator: of LangChain, openevals, agentevals, or any runnable or function that gives scores.

    A LangChain string evaluator is given texts: `prediction`, and `input` and `reference` if it wants them. A runnable
    is invoked with `{"inputs": ..., "outputs": ..., "memories": [texts]}`, and `reference` if there is one. A function
    is called as those of openevals and agentevals are, with what it takes of `inputs`, `outputs`, `reference_outputs`
    and `context`, the texts of the memories.

    Args:
        judge: The evaluator.
        read: From its answer to an outcome; by default `scores_of`.
        metric: Which score is the outcome, if there are several. None: each is an outcome of its own metric.
        reference: What the output should be, or a function of the run that knows.

    Examples:
        >>> def ragas_like(*, inputs, outputs, **_):
        ...     return {"faithfulness": 0.9, "answer_relevancy": float("nan")}
        >>> evaluator(ragas_like)(Run("r", "r", result="Prague"))
        {'faithfulness': 0.9}
        >>> evaluator(ragas_like, metric="faithfulness")(Run("r", "r", result="Prague"))
        0.9
    """
    if not (hasattr(judge, "evaluate_strings") or isinstance(judge, Runnable) or callable(judge)):
        raise InvalidInputError(
            f"{judge!r} is no evaluator; give one of LangChain, a runnable, or a function",
            value=judge,
        )

    def outcome(run: Run) -> Judgement:
        wanted = reference(run) if callable(reference) else reference
        answer = _ask(judge, run, wanted)
        return read(answer) if read is not None else scores_of(answer, metric)

    return outcome


def scores_of(answer: Any, metric: str | None = None) -> Judgement:
    """Read what evaluators answer.

    A number or bool is the outcome, and so is the `score` of a mapping or object, as of LangChain and openevals.
    Several of those, each with a `key`, and a mapping from metrics to numbers, as of RAGAS, have one outcome for each
    metric. What is no number, or NaN, is not known.

    Args:
        answer: Of an evaluator.
        metric: The one wanted of several.

    Examples:
        >>> scores_of({"score": 1, "value": "Y", "reasoning": "..."})
        1
        >>> scores_of([{"key": "correct", "score": True}, {"key": "concise", "score": 0.4}])
        {'correct': True, 'concise': 0.4}
        >>> scores_of({"faithfulness": 0.9, "comment": "good"}, "faithfulness")
        0.9
    """
    if isinstance(answer, (list, tuple)):
        named = {str(a["key"]): a.get("score") for a in answer}
    elif isinstance(answer, Mapping) and "score" not in answer:
        named = {str(key): value for key, value in answer.items()}
    else:
        single = answer["score"] if isinstance(answer, Mapping) else answer
        score: Judgement = getattr(single, "score", single)
        return score
    known = {key: value for key, value in named.items() if _is_score(value)}
    if metric is None:
        return known or None
    wanted: Judgement = known.get(metric)
    return wanted


def _ask(judge: Any, run: Run, reference: Any) -> Any:
    texts = [d.page_content for d in run.memories]
    # Without callbacks: the judge is no part of the run that it judges.
    if hasattr(judge, "evaluate_strings"):
        given = {"prediction": text_of(run.outputs), "callbacks": []}
        if judge.requires_input:
            given["input"] = text_of(run.inputs)
        if judge.requires_reference:
            given["reference"] = text_of(reference)
        return judge.evaluate_strings(**given)
    if isinstance(judge, Runnable):
        asked = {"inputs": run.inputs, "outputs": run.outputs, "memories": texts}
        if reference is not None:
            asked["reference"] = reference
        return judge.invoke(asked, {"callbacks": []})
    given = {
        "inputs": run.inputs,
        "outputs": run.outputs,
        "reference_outputs": reference,
        "context": texts,
    }
    return judge(**{name: given[name] for name in _taken(judge, given)})


def _taken(judge: Callable[..., Any], given: Mapping[str, Any]) -> list[str]:
    """Those arguments that a function names; with `**kwargs`, `context` too, or all if it names none.

    Not simply all: openevals' JSON match takes `**kwargs` and fails if `inputs` is among them.
    """
    parameters = inspect.signature(judge).parameters
    named = [name for name in given if name in parameters]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return named
    return [*named, *({"context"} - set(named))] if named else list(given)


def _is_score(value: Any) -> bool:
    # bool() because numpy's comparison gives its own type; NaN is unlike itself.
    return isinstance(value, (Real, Outcome, np.bool_)) and bool(value == value)  # noqa: PLR0124
