"""A process that writes until it is killed: `python writer.py URL SEED`.

After each call that the store has acknowledged it prints one line, so that who killed it knows what must be there:
`shown RUN`, `settled RUN REWARD`, `withdrawn RUN`, `added ID TEXT`, `deleted ID`.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from langchain_memoryworth import MemoryWorthStore
from tests.fakes import HashedWords


def say(*words: object) -> None:
    """One line, past all buffers: a killed process flushes nothing."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def write(url: str, seed: int) -> None:
    """Work for ever."""
    draw = random.Random(seed)
    sys.stdin.readline()  # whoever started this process says when
    with MemoryWorthStore(url, HashedWords(dimension=8)) as store:
        say("ready")
        settled: list[str] = []
        for n in range(1_000_000):
            run = f"{seed}-{n}"
            with store.episode(run):
                documents = store.similarity_search(f"word{draw.randrange(50)}", k=8)
            say("shown", run)
            reward = draw.choice([0.0, 1.0, 0.25])
            used = [d.id for d in documents if draw.random() < 0.5] if n % 3 == 0 else None
            store.record_outcome(run, reward, used=used)
            say("settled", run, reward)
            settled.append(run)
            if n % 5 == 0:
                again = draw.choice(settled)
                store.record_outcome(again, 0.5, source="user")
                say("settled", again, 0.5)
            if n % 7 == 0:
                again = draw.choice(settled)
                if store.withdraw_outcome(again):
                    say("withdrawn", again)
            if n % 4 == 0:
                id_, text = f"m{draw.randrange(40)}", f"word{draw.randrange(50)}"
                store.add_texts([text], ids=[id_])
                say("added", id_, text)
            if n % 9 == 0:
                id_ = f"m{draw.randrange(40)}"
                store.delete([id_])
                say("deleted", id_)


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]))
