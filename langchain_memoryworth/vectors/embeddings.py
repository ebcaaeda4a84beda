"""The embedding that is used when none is given, and what to call any other."""

from __future__ import annotations

from typing import Any

from langchain_core.embeddings import Embeddings

from langchain_memoryworth.errors import MissingExtraError, ModelUnavailableError

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"


class SentenceTransformerEmbeddings(Embeddings):
    """A sentence-transformers model on this machine, loaded at its first use.

    Args:
        model_name: Name on the Hugging Face hub, or a folder.

    Raises:
        MissingExtraError: If sentence-transformers is not installed.
        ModelUnavailableError: At the first use, if the model is not here and cannot be fetched.
    """

    def __init__(self, model_name: str = DEFAULT_MODEL) -> None:
        try:
            import sentence_transformers  # noqa: F401  # seven seconds, so not before it is wanted
        except ImportError as error:
            raise MissingExtraError("local", "sentence-transformers") from error
        self.model_name = model_name
        self._model: Any = None

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Vectors of unit length, one per text."""
        vectors: list[list[float]] = self._encode(texts).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """The vector of a query, of unit length."""
        return self.embed_documents([text])[0]

    def _encode(self, texts: list[str]) -> Any:
        if self._model is None:
            from sentence_transformers import SentenceTransformer

            try:
                self._model = SentenceTransformer(self.model_name, device="cpu")
            except OSError as error:
                [reason, *_] = str(error).splitlines() or [type(error).__name__]
                raise ModelUnavailableError(self.model_name, reason) from error
        return self._model.encode(texts, normalize_embeddings=True, show_progress_bar=False)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model_name!r})"


def name_of(embedding: Embeddings) -> str:
    """What to call a model: its `model_name` or `model`, else its class."""
    for attribute in ("model_name", "model"):
        value = getattr(embedding, attribute, None)
        if isinstance(value, str) and value:
            return value
    return type(embedding).__name__
