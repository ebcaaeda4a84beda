"""The experiments of "When to Forget", run with this package's own estimator.

`run` computes them and writes a page; what each one does stands in the module of its name. Needs
the extra `paper`.
"""

from langchain_memoryworth.experiments.experiment import Experiment
from langchain_memoryworth.experiments.registry import EXPERIMENTS
from langchain_memoryworth.experiments.runner import run

__all__ = ["EXPERIMENTS", "Experiment", "run"]
