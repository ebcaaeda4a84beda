"""What the package shows to the world, and what it costs to import it."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import langchain_memoryworth

PACKAGE = Path(langchain_memoryworth.__file__).parent


def test_all_is_sorted_and_complete() -> None:
    names = langchain_memoryworth.__all__
    assert names == sorted(names, key=lambda n: (not n.isupper(), n))  # constants first
    assert len(set(names)) == len(names)
    assert set(langchain_memoryworth._HOME) | {"__version__"} == set(names)
    assert dir(langchain_memoryworth) == sorted(names)


def test_what_type_checkers_see_is_what_there_is() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    imported = {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("langchain_memory")
        for alias in node.names
    }
    expected = {n: f"langchain_memoryworth.{m}" for n, m in langchain_memoryworth._HOME.items()}
    assert imported == expected


@pytest.mark.parametrize("name", [n for n in langchain_memoryworth.__all__ if n != "__version__"])
def test_every_name_is_there_and_documented(name: str) -> None:
    value = getattr(langchain_memoryworth, name)
    if isinstance(value, str):
        home = PACKAGE.joinpath(*langchain_memoryworth._HOME[name].split(".")).with_suffix(".py")
        body = ast.parse(home.read_text()).body
        [place] = [
            i
            for i, node in enumerate(body)
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name
        ]
        following = body[place + 1]
        assert isinstance(following, ast.Expr)
        assert isinstance(following.value, ast.Constant)
        return
    assert inspect.getdoc(value)
    if inspect.isclass(value):
        for attribute, member in vars(value).items():
            if not attribute.startswith("_") and inspect.isfunction(member):
                assert inspect.getdoc(getattr(value, attribute)), f"{name}.{attribute}"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_of_ours"):
        _ = langchain_memoryworth.nothing_of_ours


def test_version_and_types() -> None:
    assert langchain_memoryworth.__version__ == importlib.metadata.version("langchain-memoryworth")
    assert (PACKAGE / "py.typed").exists()


_BLOCKED = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Blocker())
import langchain_memoryworth
light = set(sys.modules)
for name in {names!r}:
    getattr(langchain_memoryworth, name)
print(sorted({{m.split(".")[0] for m in light}} & {{"langchain_core", "faiss", "langgraph", "numpy"}}))
print(sorted({{m.split(".")[0] for m in sys.modules}} & {blocked!r}))
print("langchain.agents" in sys.modules)
from langchain_memoryworth import MemoryWorthStore
try:
    MemoryWorthStore("sqlite://")
except ImportError as error:
    print(type(error).__name__, error)
"""

EXTRAS = {
    "torch",
    "sentence_transformers",
    "transformers",
    "scipy",
    "matplotlib",
    "pandas",
    "typer",
    "rich",
}
NEED_AN_EXTRA = {
    n for n, home in langchain_memoryworth._HOME.items() if home == "adapters.middleware"
}
"""Names that come from a module which needs more than the package itself."""


def test_the_import_needs_no_extra() -> None:
    names = [n for n in langchain_memoryworth.__all__ if n not in NEED_AN_EXTRA]
    program = _BLOCKED.format(blocked=EXTRAS, names=names)
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:langchain_memoryworth", "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    light, heavy, agents, missing = done.stdout.splitlines()
    assert light == "[]"
    assert heavy == "[]"
    assert agents == "False"
    assert missing.startswith("MissingExtraError")
    assert "pip install 'langchain-memoryworth[local]'" in missing


def test_the_import_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", "import langchain_memoryworth"],
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr


def test_every_module_says_what_it_is() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), path
