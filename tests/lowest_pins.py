"""Print the oldest releases that pyproject.toml allows, as pip constraints: for `make lowest`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
optional = project["optional-dependencies"]
for requirement in project["dependencies"] + optional["cli"] + optional["plot"]:
    name, lowest = re.match(r"([\w-]+)>=([\w.]+)", requirement).groups()
    print(f"{name}=={lowest}")
