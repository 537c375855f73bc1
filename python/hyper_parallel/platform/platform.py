"""The specification's import path of the collectives."""

from __future__ import annotations

from hyper_parallel.platform import differentiable_all_to_all_single, differentiable_variable_all_gather

__all__ = ["differentiable_all_to_all_single", "differentiable_variable_all_gather"]
