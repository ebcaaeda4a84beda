"""The demo's agent: a LangGraph graph that recalls recipes, lets a model pick one, and runs it.

It is the same graph with any retriever. Nothing in it knows which recipes work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from langchain_core.callbacks import CallbackManagerForLLMRun, dispatch_custom_event
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, START, StateGraph

from langchain_memoryworth.adapters.recorder import USED_EVENT
from langchain_memoryworth.demo.recipes import Task
from langchain_memoryworth.demo.sandbox import RunResult, Sandbox

_CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
_MEMORY = re.compile(r"<memory id=\"(.*?)\">\n(.*?)\n</memory>", re.DOTALL)


class State(TypedDict, total=False):
    """What travels through the graph."""

    question: str
    task_id: str
    documents: list[Document]
    answer: AIMessage
    ok: bool
    error: str | None


class FirstRecipeModel(BaseChatModel):
    """Stands in for a language model that trusts its memories: it follows the first recipe in its prompt."""

    @property
    def _llm_type(self) -> str:
        return "first-recipe"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        for memory_id, text in _MEMORY.findall(str(messages[0].content)):
            code = _CODE.search(text)
            if code is not None:
                call = {
                    "name": "run_python",
                    "args": {"code": code.group(1), "source": memory_id},
                    "id": "call",
                }
                message = AIMessage(content="", tool_calls=[call])
                break
        else:
            message = AIMessage(content="None of my memories tells how to do that.")
        return ChatResult(generations=[ChatGeneration(message=message)])


def python_tool(sandbox: Sandbox, tasks: Mapping[str, Task]) -> BaseTool:
    """The agent's tool: run code for a task, and see whether the result is right.

    Args:
        sandbox: Runs the code in a process of its own.
        tasks: The inputs and the check of each task.
    """

    @tool(response_format="content_and_artifact")
    def run_python(code: str, task_id: str) -> tuple[str, RunResult]:
        """Run Python code on the inputs of a task."""
        task = tasks[task_id]
        result = sandbox.run(code, setup=task.setup, check=task.check)
        return ("ok" if result.ok else f"failed: {result.error}"), result

    return run_python


def build_agent(retriever: BaseRetriever, run_python: BaseTool) -> Any:
    """The graph: recall, think, act.

    Args:
        retriever: Where the recipes come from.
        run_python: The tool of `python_tool`.

    Returns:
        A compiled graph; its output has `ok`, whether the task was done.
    """
    model = FirstRecipeModel()

    def recall(state: State) -> State:
        return {"documents": retriever.invoke(state["question"])}

    def think(state: State) -> State:
        prompt = [SystemMessage(_prompt(state["documents"])), HumanMessage(state["question"])]
        return {"answer": model.invoke(prompt)}

    def act(state: State) -> State:
        calls = state["answer"].tool_calls
        if not calls:
            return {"ok": False, "error": "no recipe"}
        arguments = calls[0]["args"]
        dispatch_custom_event(USED_EVENT, {"ids": [arguments["source"]]})
        message = run_python.invoke(
            {
                "type": "tool_call",
                "name": run_python.name,
                "id": calls[0]["id"],
                "args": {"code": arguments["code"], "task_id": state["task_id"]},
            }
        )
        result: RunResult = message.artifact
        return {"ok": result.ok, "error": result.error}

    graph = StateGraph(State)
    graph.add_sequence([recall, think, act])
    graph.add_edge(START, "recall")
    graph.add_edge("act", END)
    return graph.compile()


def _prompt(documents: Sequence[Document]) -> str:
    memories = (f'<memory id="{d.id}">\n{d.page_content}\n</memory>' for d in documents)
    return "\n".join(("Do the task with what you remember:", *memories))
