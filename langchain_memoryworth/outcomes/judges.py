"""Ready-made outcome functions: from a finished run to what happened in it.

An outcome function takes a `Run` and returns True, False, a reward in [0, 1], an `Outcome`, or None for "not known". Not
known is the default answer everywhere here: a run that ended has not succeeded by ending, nor failed by raising.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from langchain_core.documents import Document
from langchain_core.messages import ToolMessage

from langchain_memoryworth.errors import InvalidInputError, RunFailedError
from langchain_memoryworth.estimators.paths import follow
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


Judgement = bool | float | Outcome | Mapping[str, bool | float | Outcome | None] | None
"""What an outcome function may say; a mapping has one outcome for each metric, and `Policy.metric` drives worth."""
OutcomeFunction = Callable[[Run], Judgement]
Answer = TypeVar("Answer")


def check_rules(source: str, **rules: Any) -> None:
    """Refuse what could only fail inside a run, where it must not raise: every outcome would be lost.

    Args:
        source: Under which name outcomes are to be recorded.
        **rules: Functions of a run by the name of the argument that gave them; None for none.

    Raises:
        InvalidInputError: If the name is empty or no text, or a rule is no plain function.
    """
    _check(isinstance(source, str) and bool(source), "source", source, "a name such as 'user'")
    for name, rule in rules.items():
        if rule is not None:
            _check_rule(name, rule)


def output_key(key: str) -> OutcomeFunction:
    """The outcome stands in the output under a key, as in `{"answer": ..., "success": True}`.

    An agent's state is such an output; where the key is not in the state, it is looked for in its structured response.

    Examples:
        >>> output_key("ok")(Run("r", "r", result={"ok": False}))
        False
        >>> output_key("ok")(Run("r", "r", result={"messages": [], "structured_response": {"ok": True}}))
        True
    """
    _check(isinstance(key, str) and bool(key), "key", key, "a key of the output")

    def judge(run: Run) -> Judgement:
        outputs = run.outputs
        if not isinstance(outputs, Mapping):
            return None
        value: Judgement = outputs.get(key)
        if value is None:
            response = outputs.get("structured_response")
            value = (
                response.get(key) if isinstance(response, Mapping) else getattr(response, key, None)
            )
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
    told = isinstance(reference, str) or callable(reference)
    _check(told, "reference", reference, "a text, or a function of the run")

    def judge(run: Run) -> bool:
        wanted = reference(run) if callable(reference) else reference
        return text_of(run.outputs).strip().casefold() == wanted.strip().casefold()

    return judge


def keyword_match(
    keywords: Callable[[Run], Sequence[str] | str] | Sequence[str] | str, *, every: bool = True
) -> OutcomeFunction:
    """The keywords stand in the output as whole words, whatever their case; without keywords nothing is known.

    Args:
        keywords: The words, or a function of the run; a single text is one of them.
        every: All of them, or else any.

    Examples:
        >>> judge = keyword_match(["slovakia is"])
        >>> judge(Run("r", "r", result="Czechoslovakia is gone")), judge(Run("r", "r", result="Slovakia is small"))
        (False, True)
    """
    words = isinstance(keywords, Sequence) and all(isinstance(w, str) for w in keywords)
    told = words or callable(keywords)
    _check(told, "keywords", keywords, "a list of words, or a function of the run")

    def judge(run: Run) -> bool | None:
        given = keywords(run) if callable(keywords) else keywords
        wanted = [given] if isinstance(given, str) else list(given)
        text = text_of(run.outputs)
        found = [_has_word(text, w) for w in wanted if w.strip()]
        if not found:
            return None
        return all(found) if every else any(found)

    return judge


def exceptions_as_failure(*types: type[BaseException]) -> OutcomeFunction:
    """A run that raised one of these failed; of every other nothing is known.

    Cancellation and `KeyboardInterrupt` count only if they, or `BaseException`, are listed by name: of a run that was
    cancelled no other outcome function is asked.

    Examples:
        >>> judge = exceptions_as_failure(ValueError)
        >>> judge(Run("r", "r", error=ValueError())), judge(Run("r", "r", error=TimeoutError()))
        (False, None)
    """
    for kind in types:
        known = isinstance(kind, type) and issubclass(kind, BaseException)
        _check(known, "types", kind, "classes of exceptions")
    return _RaisedOneOf(types)


@dataclass(frozen=True, slots=True)
class _RaisedOneOf:
    types: tuple[type[BaseException], ...]

    def __call__(self, run: Run) -> Judgement:
        return False if isinstance(run.error, self.types) else None

    @property
    def breaks(self) -> tuple[type[BaseException], ...]:
        return tuple(t for t in self.types if not issubclass(t, Exception))


def tool_errors_as_failure() -> OutcomeFunction:
    """A run in which a tool raised failed, even if the agent went on; of every other nothing is known.

    Examples:
        >>> tool_errors_as_failure()(Run("r", "r", tool_errors=("KeyError('x')",)))
        False
    """

    def judge(run: Run) -> Judgement:
        return False if run.tool_errors else None

    return judge


def rejections_as_failure() -> OutcomeFunction:
    """A person rejected a tool call that the agent wanted to make; of every other turn nothing is known.

    Reads the messages that `HumanInTheLoopMiddleware` leaves in the state, those after the last human message.

    Examples:
        >>> from langchain_core.messages import ToolMessage
        >>> refused = ToolMessage("User rejected the tool call for `send`", tool_call_id="1", status="error")
        >>> rejections_as_failure()(Run("r", "r", result={"messages": [refused]}))
        False
    """

    def judge(run: Run) -> Judgement:
        if run.error is not None:
            return None
        return False if any(is_rejection(m) for m in last_turn(run.outputs)[1]) else None

    return judge


def first_known(*judges: Callable[[Run], Answer | None]) -> Callable[[Run], Answer | None]:
    """The first answer that is not None, of outcome functions or of rules that say what was used.

    Examples:
        >>> judge = first_known(exceptions_as_failure(ValueError), exact_match("4"))
        >>> judge(Run("r", "r", result="4")), judge(Run("r", "r", error=ValueError()))
        (True, False)
    """
    for judge in judges:
        _check_rule("judges", judge)
    return _FirstKnown(judges)


@dataclass(frozen=True, slots=True)
class _FirstKnown:
    judges: tuple[Callable[[Run], Any], ...]

    def __call__(self, run: Run) -> Any:
        return next((j for j in (one(run) for one in self.judges) if j is not None), None)

    @property
    def breaks(self) -> tuple[type[BaseException], ...]:
        return tuple(t for one in self.judges for t in breaks_of(one))


def breaks_of(judge: Callable[[Run], Any]) -> tuple[type[BaseException], ...]:
    """What no `Exception` is, as a cancellation, and still an outcome in the eyes of an outcome function."""
    breaks: tuple[type[BaseException], ...] = getattr(judge, "breaks", ())
    return breaks


def _check_rule(name: str, rule: Any) -> None:
    _check(callable(rule), name, rule, "a function of the run")
    if inspect.iscoroutinefunction(rule):
        raise InvalidInputError(
            f"{name} is a coroutine function; give a plain one: under async it is called in a "
            "thread of its own and may block",
            value=rule,
        )


def _check(right: bool, name: str, value: Any, wanted: str) -> None:
    if not right:
        raise InvalidInputError(f"{name}={value!r}; give {wanted}", value=value)


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) is not None


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


def last_turn(outputs: Any) -> tuple[list[Any], list[Any]]:
    """The last turn of an agent's state: the human messages that it began with, and what came after them."""
    found = outputs.get("messages") if isinstance(outputs, Mapping) else None
    messages = list(found) if isinstance(found, Sequence) else []
    human = [i for i, m in enumerate(messages) if getattr(m, "type", None) == "human"]
    end = human[-1] + 1 if human else 0
    begin = end
    while begin and begin - 1 in human:
        begin -= 1
    return messages[begin:end], messages[end:]


def tools_of(messages: Iterable[Any]) -> tuple[str, ...]:
    """The tools that answered in some messages, as a path; those that a person rejected were not called."""
    answers = (m for m in messages if isinstance(m, ToolMessage) and not is_rejection(m))
    return follow((), (m.name for m in answers if m.name))


def is_rejection(message: Any) -> bool:
    """Whether a message stands in for a tool call that a person rejected."""
    said = getattr(message, "additional_kwargs", {})
    if said.get("lc_source") == "hitl_interrupt_decision":
        return bool((said.get("lc_data") or {}).get("decision") == "reject")
    # Before langchain-core 1.7.2 only the text says so, unless the person gave another.
    refused = getattr(message, "type", None) == "tool" and message.status == "error"
    return refused and text_of(message).startswith("User rejected the tool call for")
