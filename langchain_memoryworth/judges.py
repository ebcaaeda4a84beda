"""Ready-made outcome functions: from a finished run to what happened in it.

An outcome function takes a `Run` and returns True, False, a reward in [0, 1], an `Outcome`, or None for "not known". Not
known is the default answer everywhere here: a run that ended has not succeeded by ending, nor failed by raising.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable

from langchain_memoryworth.errors import RunFailedError
from langchain_memoryworth.records import Outcome


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run, as an outcome function sees it.

    Attributes:
        run_id: Id of the root run.
        episode_id: Id of its episode.
        name: Name of the runnable.
        inputs: What the root got.
        error: What it raised, or None.
        memories: The documents of this store that were shown in it.
        tags: Tags of the root.
        metadata: Metadata of the root.
        thread_id: The conversation it belongs to.
        tool_errors: What its tools raised, whether handled or not.
        result: What the root returned; read it through `outputs`.
    """

    run_id: str
    episode_id: str
    name: str | None = None
    inputs: Any = None
    error: BaseException | None = None
    memories: tuple[Document, ...] = ()
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    thread_id: str | None = None
    tool_errors: tuple[str, ...] = ()
    result: Any = field(default=None, repr=False)

    @property
    def outputs(self) -> Any:
        """What the root returned.

        Raises:
            RunFailedError: If it raised instead. So `lambda run: run.outputs == expected` makes no failure of a rate
                limit: the handler takes this error as "not known".
        """
        if self.error is not None:
            raise RunFailedError(f"the run ended with {self.error!r}; look at run.error first")
        return self.result


Judgement = bool | float | Outcome | None
OutcomeFunction = Callable[[Run], Judgement]


def output_key(key: str) -> OutcomeFunction:
    """The outcome stands in the output under a key, as in `{"answer": ..., "success": True}`.

    Examples:
        >>> output_key("ok")(Run("r", "r", result={"ok": False}))
        False
    """

    def judge(run: Run) -> Judgement:
        outputs = run.outputs
        value: Judgement = outputs.get(key) if isinstance(outputs, Mapping) else None
        return value

    return judge


def exact_match(reference: Callable[[Run], str] | str) -> OutcomeFunction:
    """The output is the reference, apart from case and white space.

    Args:
        reference: The text, or a function of the run, such as `lambda run: answers[run.inputs]`.

    Examples:
        >>> exact_match("Prague")(Run("r", "r", result=" prague "))
        True
    """

    def judge(run: Run) -> bool:
        wanted = reference(run) if callable(reference) else reference
        return text_of(run.outputs).strip().casefold() == wanted.strip().casefold()

    return judge


def keyword_match(
    keywords: Callable[[Run], Sequence[str]] | Sequence[str], *, every: bool = True
) -> OutcomeFunction:
    """The keywords stand in the output as whole words, whatever their case.

    Args:
        keywords: The words, or a function of the run.
        every: All of them, or else any.

    Examples:
        >>> judge = keyword_match(["slovakia is"])
        >>> judge(Run("r", "r", result="Czechoslovakia is gone")), judge(Run("r", "r", result="Slovakia is small"))
        (False, True)
    """

    def judge(run: Run) -> bool:
        wanted = keywords(run) if callable(keywords) else keywords
        text = text_of(run.outputs)
        found = (re.search(rf"(?<!\w){re.escape(w)}(?!\w)", text, re.IGNORECASE) for w in wanted)
        return all(found) if every else any(found)

    return judge


def exceptions_as_failure(*types: type[BaseException]) -> OutcomeFunction:
    """A run that raised one of these failed; of every other nothing is known.

    Examples:
        >>> judge = exceptions_as_failure(ValueError)
        >>> judge(Run("r", "r", error=ValueError())), judge(Run("r", "r", error=TimeoutError()))
        (False, None)
    """

    def judge(run: Run) -> Judgement:
        return False if isinstance(run.error, types) else None

    return judge


def tool_errors_as_failure() -> OutcomeFunction:
    """A run in which a tool raised failed, even if the agent went on; of every other nothing is known.

    Examples:
        >>> tool_errors_as_failure()(Run("r", "r", tool_errors=("KeyError('x')",)))
        False
    """

    def judge(run: Run) -> Judgement:
        return False if run.tool_errors else None

    return judge


def evaluator(
    runnable: Runnable[Any, Any], read: Callable[[Any], Judgement] | None = None
) -> OutcomeFunction:
    """Ask a runnable, such as a model with structured output, a chain, or a wrapped evaluator.

    It is invoked with `{"inputs": ..., "outputs": ..., "memories": [texts]}`.

    Args:
        runnable: The judge.
        read: From its answer to an outcome; by default the answer itself, or its `score`.
    """

    def judge(run: Run) -> Judgement:
        asked = {
            "inputs": run.inputs,
            "outputs": run.outputs,
            "memories": [d.page_content for d in run.memories],
        }
        # Without callbacks: the judge is no part of the run that it judges.
        answer = runnable.invoke(asked, {"callbacks": []})
        return read(answer) if read is not None else _score(answer)

    return judge


def first_known(*judges: OutcomeFunction) -> OutcomeFunction:
    """The first answer that is not None.

    Examples:
        >>> judge = first_known(exceptions_as_failure(ValueError), exact_match("4"))
        >>> judge(Run("r", "r", result="4")), judge(Run("r", "r", error=ValueError()))
        (True, False)
    """

    def judge(run: Run) -> Judgement:
        return next((j for j in (one(run) for one in judges) if j is not None), None)

    return judge


def text_of(outputs: Any) -> str:
    """The text of an output: a string, a message, or the last message of a graph's state."""
    if isinstance(outputs, Mapping):
        messages = outputs.get("messages")
        if messages:
            return text_of(messages[-1])
        return " ".join(text_of(v) for v in outputs.values())
    content = getattr(outputs, "content", outputs)
    if isinstance(content, list):
        return " ".join(
            str(b.get("text", "")) if isinstance(b, Mapping) else str(b) for b in content
        )
    return content if isinstance(content, str) else str(content)


def _score(answer: Any) -> Judgement:
    if isinstance(answer, Mapping):
        score: Judgement = answer.get("score")
        return score
    result: Judgement = getattr(answer, "score", answer)
    return result
