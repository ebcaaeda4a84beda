"""Tools by which an agent writes to its memory: through the store, in the namespace of the run, never raising."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

from langchain_core.tools import BaseTool, StructuredTool

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.records import Namespace, Status
from langchain_memoryworth.service.governor import Governor

ToolName = Literal["remember", "forget"]


def write_back_tools(
    governor: Governor, names: Sequence[ToolName], namespace: Callable[[], Namespace | None]
) -> list[BaseTool]:
    """The tools `remember` and `forget`.

    What is remembered is a memory like any other: it starts without evidence. What is forgotten is out of service, and
    comes back with its evidence when the same text is added again; pinned memories stay.

    Args:
        governor: Of the store.
        names: Which of them.
        namespace: Asked inside each call; None means the store's own.

    Raises:
        InvalidInputError: If there is no tool by a name.
    """
    unknown = [n for n in names if n not in get_args(ToolName)]
    if unknown:
        raise InvalidInputError(
            f"tools={list(names)!r}; there are {get_args(ToolName)}", value=unknown
        )

    def remember(text: str) -> str:
        """Keep a short, self-contained note for later conversations.

        Args:
            text: What to remember, one fact or lesson.
        """
        if not text.strip():
            return "There is nothing to remember in an empty text."
        with governor.losses.guard("what an agent remembered"):
            vectors = governor.embedding.embed_documents([text])
            ids = governor.collection.add(
                [text], vectors, [{"source": "agent"}], [None], namespace()
            )
            return f"Remembered as {ids[0]}."
        return "The memory could not be written."

    def forget(memory_id: str) -> str:
        """Drop a remembered note that is wrong or out of date.

        Args:
            memory_id: Its id.
        """
        with governor.losses.guard("what an agent forgot"):
            where = namespace()
            found = governor.collection.get([memory_id], where).get(memory_id)
            if found is None:
                return f"There is no memory {memory_id}."
            if found.status is Status.PINNED:
                return f"Memory {memory_id} is pinned and stays."
            governor.collection.retire([memory_id], where)
            return f"Forgot {memory_id}."
        return "The memory could not be changed."

    made = {"remember": remember, "forget": forget}
    return [
        StructuredTool.from_function(made[n], parse_docstring=True) for n in dict.fromkeys(names)
    ]
