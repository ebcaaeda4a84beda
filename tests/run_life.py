"""The table of docs/runs.md: what happens in a run, what it means, and the tests that show it; see `tests.tables`.

Whether a row is shown under sync and under async is read from its tests.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

from tests.tables import Row, Table

_BOTH = {"ask", "call", "go", "saved"}
"""Fixtures that give a test once under sync and once under async."""

_SYNC = re.compile(r"\.(invoke|batch|stream)\(|\"invoke\"|library\(|start\(")
_ASYNC = re.compile(r"asyncio\.run\(|\.(ainvoke|abatch|astream)\(|\"ainvoke\"")


class Case(NamedTuple):
    """One row; `shown` are tests as `module.function` without their `test_`."""

    situation: str
    meaning: str
    shown: tuple[str, ...]

    @property
    def tests(self) -> list[Callable[..., Any]]:
        """The tests themselves."""
        parts = [s.split(".") for s in self.shown]
        return [getattr(import_module(f"tests.test_{m}"), f"test_{name}") for m, name in parts]


CASES = (
    # Streams
    Case(
        "a stream of LCEL or LangGraph to its end",
        "the outcome function is asked",
        (
            "run_life.a_stream_to_its_end",
            "run_life.an_async_stream_to_its_end",
            "run_life.a_graph_streams_to_its_end",
            "run_life.a_graph_streams_to_its_end_async",
            "run_life.events_of_a_stream",
        ),
    ),
    Case(
        "its consumer stops early",
        "not known, also where LangChain reports success",
        (
            "run_life.a_stream_whose_consumer_stops_is_no_success",
            "run_life.a_stream_that_a_loop_breaks_out_of",
            "run_life.an_async_stream_whose_consumer_stops",
            "run_life.a_graph_whose_consumer_stops",
            "run_life.a_graph_whose_consumer_stops_async",
        ),
    ),
    Case(
        "its generator is kept, closed later, or garbage collected",
        "pending while it is kept; to its end it is asked about, otherwise not known",
        (
            "run_life.a_stream_kept_alive_is_pending_and_may_end_later",
            "run_life.an_async_stream_kept_alive_is_pending_and_may_end_later",
            "run_life.a_stream_kept_alive_does_not_take_other_runs_in",
            "run_life.a_stream_that_is_garbage_collected",
            "run_life.an_async_stream_that_is_garbage_collected",
        ),
    ),
    # Cancellation and errors
    Case(
        "cancellation, a timeout",
        "not known",
        (
            "run_life.a_cancelled_run",
            "run_life.a_run_that_times_out",
            "run_life.one_cancelled_of_many",
        ),
    ),
    Case(
        "`KeyboardInterrupt`, `SystemExit`, `GeneratorExit`",
        "not known",
        (
            "run_life.an_interrupt_of_the_process",
            "run_life.an_interrupt_of_the_process_under_async",
        ),
    ),
    Case(
        "an exception, also with `return_exceptions`",
        "not known, unless the user's list names it",
        (
            "callbacks.an_exception_is_not_a_failure",
            "callbacks.an_outcome_function_may_look_at_the_error",
            "callbacks.exceptions_that_a_batch_returns",
        ),
    ),
    Case(
        "the recursion limit",
        "likewise; what a loop retrieved in each round counts once",
        ("run_life.a_recursion_limit_is_for_the_user_to_judge",),
    ),
    # Retries and fallbacks
    Case(
        "`with_retry`, a node's `RetryPolicy`",
        "one episode, each memory once",
        (
            "run_trees.with_retry",
            "run_trees.with_retry_inside",
            "run_trees.a_retry_policy_of_a_node",
        ),
    ),
    Case(
        "`with_fallbacks`, also at the top, where LangChain has a root for each",
        "one episode with what all of them retrieved",
        (
            "run_trees.fallbacks_at_the_top_are_one_episode",
            "run_trees.fallbacks_at_the_top_are_one_episode_async",
            "run_trees.two_fallbacks_beside_each_other_do_not_mix",
            "run_trees.a_retriever_with_a_fallback",
        ),
    ),
    # Trees
    Case(
        "`RunnableParallel`, `RunnableBranch`, sequences in sequences, lambdas that pass no config",
        "one episode, each memory once",
        (
            "run_trees.a_parallel_and_a_branch",
            "run_trees.assign_and_nested_sequences",
            "run_trees.a_lambda_that_does_not_pass_its_config",
        ),
    ),
    Case(
        "`Send`, subgraphs as nodes and inside nodes, the functional API",
        "one episode, each memory once",
        ("run_trees.a_map_reduce", "run_trees.subgraphs", "run_trees.the_functional_api"),
    ),
    Case(
        "`Command(graph=PARENT)`",
        "goes on in the parent; a handler that sees only the graph that was left knows nothing",
        (
            "run_trees.a_command_to_the_parent",
            "run_trees.a_handler_that_sees_only_a_graph_that_is_left",
        ),
    ),
    Case(
        "tools, retriever tools, `ToolNode`, agents in agents",
        "the episode of the outermost run, each memory once",
        (
            "run_trees.an_agent_with_a_retriever_tool",
            "run_trees.a_tool_node",
            "run_trees.a_subagent_in_a_tool",
        ),
    ),
    Case(
        "a handler bound inside, attached twice, or beside others",
        "it takes what it sees; feedback by the outer run's id finds it; nothing counts twice",
        (
            "run_trees.a_handler_bound_inside_takes_what_it_sees",
            "run_trees.a_handler_bound_inside_one_that_sees_all",
            "run_trees.a_call_that_is_given_the_handler_again",
            "callbacks.a_handler_attached_twice_counts_once",
            "callbacks.two_handlers_of_one_store_settle_one_episode",
        ),
    ),
    # Interrupts
    Case(
        "`interrupt()`, also in subgraphs, branches and tools",
        "not known yet; the resumed run is the same episode",
        (
            "run_resume.an_interrupt_is_no_success",
            "run_resume.a_resumed_run_is_the_same_episode",
            "run_resume.an_interrupt_in_a_subgraph",
            "run_resume.an_interrupt_in_a_branch_beside_others",
            "run_resume.an_interrupt_in_a_tool_is_no_tool_error",
        ),
    ),
    Case(
        "`interrupt_before`, `interrupt_after`, also in a subgraph, also after `update_state`",
        "likewise",
        (
            "run_resume.static_breakpoints",
            "run_resume.static_breakpoints_in_a_subgraph",
            "run_resume.breakpoints_after_update_state",
        ),
    ),
    Case(
        "an agent with a person in the loop",
        "likewise",
        ("run_resume.an_agent_with_a_person_in_the_loop",),
    ),
    Case(
        "resumed in another process, or days later",
        "likewise: the joint is in the database",
        (
            "run_resume.resumed_in_another_process",
            "run_resume.resumed_days_later_by_another_handler",
        ),
    ),
    Case(
        "a graph that failed and is started again",
        "the same episode",
        ("run_resume.a_graph_that_failed_and_goes_on",),
    ),
    Case(
        "time travel",
        "an episode of its own, with what stood in front of the model at that point",
        (
            "run_resume.time_travel_begins_an_episode_of_its_own",
            "run_resume.going_back_to_an_interrupt_that_is_over",
            "run_resume.a_fork_of_an_interrupt_asks_again",
        ),
    ),
    Case(
        "a thread with many turns",
        "each turn an episode, unless `episode_id` says otherwise",
        (
            "run_resume.every_turn_is_an_episode",
            "run_resume.turns_are_one_episode_if_the_user_says_so",
            "run_resume.a_new_turn_over_an_interrupt",
        ),
    ),
    # Late, unending, reused
    Case(
        "background work that uses the config of a run that is over",
        "belongs to no run, is counted as unattributed",
        (
            "run_bounds.background_work_with_the_config_of_a_finished_run",
            "run_bounds.a_task_that_outlives_its_run",
        ),
    ),
    Case(
        "a child that ends after the root",
        "is taken in, under the same outcome",
        (
            "run_bounds.a_child_that_ends_after_the_root_is_taken_in",
            "run_bounds.a_thread_that_ends_after_the_root_is_taken_in",
        ),
    ),
    Case(
        "roots that never end",
        "at most 8,192 are open, in less than 64 MB; the oldest is abandoned, counted, and still open to feedback",
        (
            "run_bounds.runs_that_never_end_take_little_memory",
            "run_bounds.an_abandoned_root_that_ends_after_all_is_not_judged",
        ),
    ),
    Case(
        "a run id used again",
        "`id#2`; feedback goes to the newest, and it is counted",
        (
            "run_bounds.a_run_id_that_is_used_again",
            "run_bounds.a_run_id_that_another_process_has_settled",
        ),
    ),
    Case(
        "functions under LangSmith's `@traceable`, parents that LangChain does not know",
        "the id of each run around is a name of the episode, of the newest if there are several",
        (
            "run_bounds.functions_that_langsmith_traces",
            "run_bounds.several_runs_in_one_function_that_langsmith_traces",
            "run_bounds.a_parent_that_langchain_does_not_know",
        ),
    ),
    # Threads
    Case(
        "threads and executors of the user's own",
        "with a copied context, or `episode()` inside, all is known; the rest is counted as unattributed",
        (
            "retriever.own_threads_are_counted_unless_they_copy_the_context",
            "retriever.own_threads_inside_an_episode",
        ),
    ),
    Case(
        "64 runs at once, 200 gathered tasks, one handler",
        "each its own",
        (
            "callbacks.64_concurrent_runs_do_not_mix",
            "callbacks.200_gathered_tasks_do_not_mix",
            "run_resume.many_threads_stop_and_go_on_at_once",
        ),
    ),
    # Retrievers
    Case(
        "compressors, `EnsembleRetriever`, `MergerRetriever`, `MultiQueryRetriever`, `ParentDocumentRetriever`, reordering",
        "credited is what the outermost gave",
        (
            "run_trees.contextual_compression",
            "run_trees.an_ensemble",
            "run_trees.an_ensemble_with_two_ids_of_one_text",
            "run_trees.a_merger",
            "run_trees.multi_query",
            "run_trees.parent_documents",
            "run_trees.reordering_changes_nothing",
        ),
    ),
    Case(
        "a prompt that truncates, and says so by `memory_worth.shown`; an answer that says `memory_worth.used`",
        "credited is what reached the prompt; what was used gets the credit",
        (
            "run_trees.a_prompt_that_truncates_says_what_is_left",
            "run_trees.a_branch_does_not_speak_for_another",
            "callbacks.a_run_says_what_it_used",
        ),
    ),
    # The context manager
    Case(
        "`with memory_worth(store):` around code of others",
        "as with a handler in the config; what it cannot see is counted as unattributed",
        (
            "run_bounds.the_context_manager",
            "run_bounds.the_context_manager_with_graphs_batches_and_tasks",
            "run_bounds.what_the_context_manager_does_not_see_is_counted",
        ),
    ),
    Case(
        "interrupts and breakpoints under it",
        "likewise; a graph that is given callbacks of its own needs a LangGraph that adds them to those around",
        (
            "run_resume.the_context_manager_follows_dynamic_interrupts",
            "run_resume.the_context_manager_follows_static_breakpoints",
            "run_resume.the_context_manager_around_runs_with_callbacks_of_their_own",
        ),
    ),
    # The nodes
    Case(
        "`RecallNode` and `OutcomeNode`: loops, turns",
        "a loop is one episode, the next turn another",
        (
            "nodes.a_loop_is_one_episode",
            "nodes.after_an_outcome_the_next_recall_begins_a_new_one",
            "nodes_life.every_turn_is_an_episode",
        ),
    ),
    Case(
        "the same: branches, `Send`, retries, subgraphs",
        "one episode, each memory once",
        (
            "nodes.parallel_branches_are_one_episode",
            "nodes.a_map_reduce_is_one_episode",
            "nodes.attempts_of_a_retry_policy_are_one_episode",
            "nodes.recalled_in_a_subgraph_and_judged_outside",
        ),
    ),
    Case(
        "the same: interrupts, other processes, failures, time travel",
        "the episode that the state carries; before the recall another",
        (
            "nodes_life.an_interrupt_between_them",
            "nodes_life.static_breakpoints",
            "nodes_life.resumed_in_another_process",
            "nodes_life.a_graph_that_failed_and_goes_on",
            "nodes_life.going_back_between_them_corrects_the_outcome",
            "nodes_life.going_back_before_the_recall_is_another_episode",
        ),
    ),
    Case(
        "the same: beside a handler",
        "nothing counts twice",
        (
            "nodes.beside_a_handler_nothing_counts_twice",
            "nodes_life.an_interrupt_beside_a_handler",
        ),
    ),
    # What goes wrong here
    Case(
        "a handler that fails, a database that cannot be written",
        "the run goes on, `store.health()` counts it",
        (
            "callbacks.an_outcome_function_that_raises",
            "callbacks.a_wrong_outcome_changes_nothing",
            "callbacks.a_ledger_that_cannot_be_written",
            "nodes.a_ledger_that_cannot_be_written",
        ),
    ),
    Case(
        "async runs",
        "no database work on the event loop's thread",
        (
            "callbacks.no_database_work_on_the_event_loop",
            "run_resume.no_database_work_on_the_event_loop",
            "nodes.no_database_work_on_the_event_loop",
        ),
    ),
    Case(
        "random trees of all these",
        "each episode is what a simple oracle says",
        ("run_fuzz.every_episode_holds_what_the_oracle_says",),
    ),
)

_HEAD = ("What happens", "What it means", "Sync", "Async", "Shown by")


def under(test: Callable[..., Any]) -> set[str]:
    """`sync`, `async`, or both: how a test calls what it tests."""
    if _BOTH & set(inspect.signature(test).parameters):
        return {"sync", "async"}
    source = inspect.getsource(test)
    found = {"async"} if inspect.iscoroutinefunction(test) or _ASYNC.search(source) else set()
    return found | ({"sync"} if _SYNC.search(source) else set())


def rows() -> Iterator[Row]:
    """One row per case."""
    for case in CASES:
        shown = set().union(*map(under, case.tests))
        tests = ", ".join(f"`{s.replace('.', '.test_')}`" for s in case.shown)
        yield (
            case.situation,
            case.meaning,
            *("yes" if way in shown else "" for way in ("sync", "async")),
            tests,
        )


TABLE = Table("runs.md", "run_life", _HEAD, rows)
