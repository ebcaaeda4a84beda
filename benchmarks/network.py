"""What a call costs on the line to a Postgres: bytes each way, and round trips.

A proxy stands between that counts and, to tell how often an answer is waited for, holds everything back for a while.
`python -m benchmarks.network --into docs/scale.md` writes the table into the page; it takes some minutes.
"""

from __future__ import annotations

import argparse
import queue
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from langchain_core.embeddings import DeterministicFakeEmbedding
from sqlalchemy import make_url

from benchmarks.data import DIMENSION, K, fill, folder, queries, unit_vectors
from benchmarks.postgres import server_in
from benchmarks.tables import put, table
from langchain_memoryworth import MemoryWorthStore
from langchain_memoryworth.vectors.index import Kind
from langchain_memoryworth.vectors.pgvector_index import EXACT

_COMMAND = "python -m benchmarks.network"
_SOCKET = ".s.PGSQL.5432"


class Cost(NamedTuple):
    """Of one call: bytes, and how often an answer was waited for."""

    call: str
    sent: int
    received: int
    turns: int


class Line:
    """A proxy in front of the socket of a server.

    Args:
        place: Folder of its own socket.
        server: Folder of the server's.
        delay: Seconds that everything is held back, each way; what varies in the work of a call has to be less, or it would
            count as a round trip.
        times: How often a call is measured.
    """

    def __init__(self, place: Path, server: Path, delay: float, times: int) -> None:
        self._delay, self._times = delay, times
        self._holds = 0.0
        self.bytes = [0, 0]
        self._server = str(server / _SOCKET)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(place / _SOCKET))
        self._listening.listen()
        self._open = [self._listening]
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End all connections."""
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # wakes who waits for it
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                self._open += client, server
                server.connect(self._server)
                self._join(client, server, 0)
                self._join(server, client, 1)

    def _join(self, source: socket.socket, target: socket.socket, way: int) -> None:
        held: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

        def take() -> None:
            data = b"-"
            while data:
                try:
                    data = source.recv(1 << 16)
                except OSError:
                    data = b""
                self.bytes[way] += len(data)
                held.put((time.monotonic() + self._holds, data))

        def give() -> None:
            while True:
                due, data = held.get()
                time.sleep(max(0.0, due - time.monotonic()))
                with suppress(OSError):
                    if not data:
                        return target.shutdown(socket.SHUT_WR)
                    target.sendall(data)

        for work in (take, give):
            Thread(target=work, daemon=True).start()

    def cost(
        self, call: str, before: Callable[[int], object], work: Callable[[int], object]
    ) -> Cost:
        """Of the work, which is done with other things each time: first without a delay and then with it, again and again."""
        taken: dict[float, list[float]] = {0.0: [], self._delay: []}
        for number in range(2 * self._times):
            delay = self._delay * (number % 2)
            taken[delay].append(self._taken(number, delay, before, work))
        # The least of each, which others on the machine have held up least.
        waited = min(taken[self._delay]) - min(taken[0.0])
        return Cost(call, *self.bytes, round(waited / (2 * self._delay)))

    def _taken(
        self,
        number: int,
        delay: float,
        before: Callable[[int], object],
        work: Callable[[int], object],
    ) -> float:
        before(number)
        self.bytes, self._holds = [0, 0], delay
        begin = time.monotonic()
        work(number)
        taken = time.monotonic() - begin
        self._holds = 0.0
        return taken


@contextmanager
def _line(place: Path, delay: float, times: int) -> Iterator[tuple[Line, str]]:
    with server_in(place) as server:
        front = place / "line"
        front.mkdir()
        line = Line(front, Path(str(make_url(server).query["host"])), delay, times)
        try:
            yield line, f"postgresql+psycopg://postgres@/postgres?host={front}"
        finally:
            line.close()


def measured(
    few: int, many: int, batches: Sequence[int], *, delay: float = 0.1, times: int = 5
) -> list[Cost]:
    """Searches with the vectors in the worker and in the server, and outcomes."""
    costs: list[Cost] = []
    with folder() as place, _line(place, delay, times) as (line, url):
        ways: tuple[tuple[Kind, int], ...] = (("flat", many), ("pgvector", many), ("pgvector", few))
        for index, count in ways:
            with _opened(f"{url}&schema={index}{count}", index, count) as store:
                costs += _searches(line, store, f'`index="{index}"`, {count:,} memories')
                if index == "flat":
                    costs += [_outcomes(line, store, size) for size in batches]
    return costs


def _opened(url: str, index: Kind, count: int) -> MemoryWorthStore:
    embedding = DeterministicFakeEmbedding(size=DIMENSION)
    store = MemoryWorthStore(url, embedding, embedding_name="bench", index=index)
    fill(store, unit_vectors(count))
    return store


def _searches(line: Line, store: MemoryWorthStore, case: str) -> list[Cost]:
    asked = queries()

    def search(number: int) -> None:
        store.similarity_search_by_vector(asked[number].tolist(), K)

    def recorded(number: int) -> None:
        with store.episode():
            search(number)

    return [
        line.cost(f"{case}, looked up only", _nothing, search),
        line.cost(f"{case}, in an episode", _nothing, recorded),
    ]


def _outcomes(line: Line, store: MemoryWorthStore, size: int) -> Cost:
    asked = queries()
    run_ids: list[str] = []

    def before(_: int) -> None:
        run_ids.clear()
        for number in range(size):
            with store.episode() as episode:
                store.similarity_search_by_vector(asked[number % len(asked)].tolist(), K)
            run_ids.append(episode.id)

    if size == 1:
        return line.cost(
            "`record_outcome`", before, lambda _: store.record_outcome(run_ids[0], outcome=True)
        )
    return line.cost(
        f"`record_outcomes`, {size} runs",
        before,
        lambda _: store.record_outcomes([(r, n % 5 > 0) for n, r in enumerate(run_ids)]),
    )


def _nothing(_: int) -> None: ...


def page(costs: Sequence[Cost]) -> str:
    """The table in Markdown."""
    rows = [[c.call, _kb(c.sent), _kb(c.received), str(c.turns)] for c in costs]
    return (
        f"`{_COMMAND}`: {DIMENSION} dimensions, k={K}, the default policy, searches before the first outcome, of outcomes one in five is a failure.\n\n"
        + table(("call", "sent, kB", "received, kB", "round trips"), rows)
    )


def _kb(count: int) -> str:
    return f"{count / 1e3:.1f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog=_COMMAND, description=__doc__)
    parser.add_argument("--into", type=Path, help="the page to write into; else the terminal")
    given = parser.parse_args(arguments)
    text = page(measured(1_000, EXACT + 2_000, (1, 10, 100)))
    if given.into is None:
        print(text)
    else:
        put(given.into, _COMMAND, text)


if __name__ == "__main__":
    main()
