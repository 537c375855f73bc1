"""The framework of this process's platform, behind the one interface that the tests of both platforms use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from hyper_parallel import platform

if TYPE_CHECKING:
    from support.frameworks.interface import Framework

__all__ = ["framework"]

framework = cast("Framework", importlib.import_module(f"support.frameworks.on_{platform.name()}"))
