"""hyper_parallel on MindSpore: the DTensor, its operations and the parameters of cells.

What is common to both frameworks stands in ``hyper_parallel`` itself, and ``DTensor`` and ``distribute_tensor`` too.
"""

from __future__ import annotations

from hyper_parallel.mindspore import functional
from hyper_parallel.mindspore.dtensor import DTensor, distribute_tensor
from hyper_parallel.mindspore.parameter import LocalParameter, distribute_parameter

__all__ = ["DTensor", "LocalParameter", "distribute_parameter", "distribute_tensor", "functional"]
