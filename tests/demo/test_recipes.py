"""Every recipe of the demo does what its side says, and the data has the shape the demo needs."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import version

import pytest

from langchain_memoryworth.demo.recipes import Recipe, Task, load_neutral, load_tasks
from langchain_memoryworth.demo.sandbox import RunResult, Sandbox

TASKS = load_tasks()


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as running:
        yield running


def run(sandbox: Sandbox, task: Task, recipe: Recipe) -> RunResult:
    return sandbox.run(recipe.code, setup=task.setup, check=task.check)


def skip_when_older(task: Task) -> None:
    """With a release from before the upgrade the two recipes may well change roles."""
    installed = platform.python_version() if task.library == "python" else version(task.library)
    if release(installed) < release(task.broken_from):
        pytest.skip(f"{task.library} {installed} is older than {task.broken_from}")


def release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_working_recipe_passes_its_check(sandbox: Sandbox, task: Task) -> None:
    skip_when_older(task)
    result = run(sandbox, task, task.works)
    assert result.ok, result.error


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_broken_recipe_fails(sandbox: Sandbox, task: Task) -> None:
    skip_when_older(task)
    result = run(sandbox, task, task.broken)
    assert not result.ok
    # A setup that fails or runs out of time would make any recipe look broken.
    assert result.error is not None
    assert not result.error.startswith(("setup:", "time limit", "ended early", "SyntaxError"))


def test_some_broken_recipes_fail_silently(sandbox: Sandbox) -> None:
    errors = [run(sandbox, task, task.broken).error or "" for task in TASKS]
    silent = [error for error in errors if error.startswith("check: does not hold")]
    assert 8 <= len(silent) <= len(TASKS) // 2


def test_there_are_enough_tasks() -> None:
    assert len(TASKS) >= 60
    assert len({task.id for task in TASKS}) == len(TASKS)
    assert {"numpy", "pydantic", "sqlalchemy", "langchain-core", "langgraph", "python"} == {
        task.library for task in TASKS
    }


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_every_task_is_asked_for_in_its_own_words(task: Task) -> None:
    assert len(task.queries) >= 4
    texts = {text.casefold() for text in (task.task, task.works.text, task.broken.text)}
    assert not texts & {query.casefold() for query in task.queries}


def test_queries_and_memories_are_distinct() -> None:
    queries = [query for task in TASKS for query in task.queries]
    memories = [recipe.memory for task in TASKS for recipe in (task.works, task.broken)]
    memories.extend(load_neutral())
    assert len(set(queries)) == len(queries)
    assert len(set(memories)) == len(memories)
    assert not set(queries) & set(memories)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_sides_differ_in_wording_and_code(task: Task) -> None:
    assert task.works.works
    assert not task.broken.works
    assert task.works.text != task.broken.text
    assert task.works.code != task.broken.code
    for recipe in (task.works, task.broken):
        assert recipe.task_id == task.id
        assert recipe.library == task.library
        assert recipe.text in recipe.memory
        assert recipe.code.strip() in recipe.memory
        assert "result" in recipe.code


def test_neutral_memories_are_plain_text() -> None:
    neutral = load_neutral()
    assert len(neutral) >= 20
    assert not [text for text in neutral if "`" in text or "\n" in text]
