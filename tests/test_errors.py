"""Errors travel between processes whole: a worker of a pool must be able to name the cause."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from langchain_memoryworth import errors

SAMPLES = [
    errors.InvalidInputError("no", value=3),
    errors.DimensionMismatchError(384, 6),
    errors.MemoryNotFoundError.of(("acme",), ["a", "b"]),
    errors.UnknownRunError("r"),
    errors.EmbeddingMismatchError("a", "b"),
    errors.SchemaVersionError(9, 1),
    errors.MissingExtraError("local", "sentence-transformers"),
    errors.StorageFullError("full"),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda e: type(e).__name__)
def test_an_error_survives_a_process_boundary(error):
    # multiprocessing pickles exceptions; nothing of ours is stored that way.
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert other.__dict__ == error.__dict__


def test_every_error_is_one_of_ours():
    public = [
        value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, Exception) and not name.startswith("_")
    ]
    assert all(issubclass(e, errors.MemoryWorthError) for e in public)
    assert all(inspect.getdoc(e) for e in public)
