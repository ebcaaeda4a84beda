"""Graphs of `hnsw` on files, so that a process that opens a store need not build them again.

A file holds which memory is linked to which, and check sums of their vectors; no text and no vector. It is never needed and
never trusted: a file that is missing, damaged or of other vectors costs the time to build the graph, and nothing else.
"""

from __future__ import annotations

import hashlib
import logging
import os
import zipfile
from pathlib import Path
from typing import BinaryIO

import numpy as np

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.records import Namespace, namespace_key
from langchain_memoryworth.vectors.index import Graph, Kind

logger = logging.getLogger("langchain_memoryworth")


class Graphs:
    """The files of one store.

    Args:
        kind: Of the indexes; without a graph there are no files.
        database: Its name, so that two stores in one folder keep apart.
        beside: The file of the database, if it has one.
        folder: Where to keep them; None means beside the database, and nowhere if that is no file.

    Raises:
        InvalidInputError: If there is no such folder.
    """

    def __init__(
        self, kind: Kind, database: str, beside: Path | None, folder: os.PathLike[str] | str | None
    ) -> None:
        self._kind = kind
        self._start: Path | None = None
        self._owner = ""
        if folder is not None:
            named = isinstance(folder, (str, os.PathLike)) and folder  # "" would be where one is
            if not named or not Path(folder).is_dir():
                raise InvalidInputError(
                    f"graph_folder={folder!r} is no folder; make it first", value=folder
                )
            self._start, self._owner = Path(folder) / "memoryworth", database
        elif beside is not None:
            self._start = (
                beside  # without its name in the digest, so that they can be moved together
            )
        if not kind.startswith("hnsw"):
            self._start = None

    def path(self, namespace: Namespace, dimension: int) -> Path | None:
        """The file of one namespace, whether it is there or not; None if none is kept."""
        if self._start is None:
            return None
        name = f"{self._owner}\n{namespace_key(namespace)}\n{self._kind}\n{dimension}"
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        return self._start.with_name(f"{self._start.name}-{digest}.graph")

    def read(self, namespace: Namespace, dimension: int) -> Graph | None:
        """What was kept of a namespace; None if nothing was, or it cannot be read."""
        path = self.path(namespace, dimension)
        if path is None:
            return None
        try:
            # Every part has a CRC, which is compared as it is read.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as parts:
                graph = Graph(parts["seqs"], parts["marks"], parts["links"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            logger.warning("%s cannot be read, so the graph is built anew: %s", path, error)
            return None
        types = [array.dtype for array in graph]
        return graph if types == [np.int64, np.uint64, np.uint8] else None

    def keep(self, namespace: Namespace, dimension: int, graph: Graph) -> None:
        """Replace what was kept of a namespace; if that fails the log says so, and the old file stays."""
        path = self.path(namespace, dimension)
        if path is None:
            return
        new = path.with_name(f"{path.name}.{os.getpid()}.tmp")  # others may keep theirs just now
        try:
            with new.open("wb") as file:
                _write(file, graph)
            new.replace(path)
        except OSError as error:
            logger.warning("the graph is not kept in %s: %s", path, error)
            new.unlink(missing_ok=True)


def _write(file: BinaryIO, graph: Graph) -> None:
    np.savez(file, seqs=graph.seqs, marks=graph.marks, links=graph.links)
    file.flush()
    os.fsync(file.fileno())
