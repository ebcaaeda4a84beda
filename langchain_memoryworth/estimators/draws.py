"""Chance that agrees with itself: each draw is a hash of (seed, episode, memory), so retries and resumes draw the same."""

from __future__ import annotations

import hashlib


def uniform(seed: int, *names: object) -> float:
    """A number in [0, 1) that depends on nothing but its arguments.

    Examples:
        >>> uniform(0, "run-1") == uniform(0, "run-1") != uniform(1, "run-1")
        True
    """
    text = "/".join(str(n) for n in (seed, *names))
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def explores(seed: int, episode_id: str, rate: float) -> bool:
    """Whether an episode shows a suppressed memory on probation; one draw, whatever it retrieves (assumption A2).

    Examples:
        >>> sum(explores(0, f"run-{i}", 0.1) for i in range(1000))
        107
    """
    return bool(rate) and uniform(seed, episode_id) < rate


def holds_out(seed: int, episode_id: str, memory: object, rate: float) -> bool:
    """Whether an episode does without a memory that it retrieves: a randomised trial of one memory.

    Args:
        seed: `Policy.seed`.
        episode_id: The episode; in one episode a memory has one arm.
        memory: What names the memory, and always the same.
        rate: Probability, in [0, 1].

    Examples:
        >>> sum(holds_out(0, f"run-{i}", 7, 0.5) for i in range(1000))
        463
    """
    return bool(rate) and uniform(seed, episode_id, memory) < rate
