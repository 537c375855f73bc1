"""Which framework the package computes with, in an environment that has one of the two."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

import hyper_parallel
from hyper_parallel import platform
from support.common import assert_raises
from support.frameworks import framework

OWN = framework.NAME
OTHER = {"torch": "mindspore", "mindspore": "torch"}[OWN]
STAND_IN = f"import types; sys.modules['{OTHER}'] = types.ModuleType('{OTHER}')"
"""Imports something under the name of the other framework."""
LOADED = "print([name for name in ('torch', 'mindspore') if name in sys.modules])"


def in_fresh_python(program: str, *options: str, platform: str = "") -> str:
    """What the program prints, or its last line of error, in a process that has imported nothing yet."""
    done = subprocess.run(
        [sys.executable, *options, "-c", f"import sys; {program}"],
        env={**os.environ, "HYPER_PARALLEL_PLATFORM": platform},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()[-1]


def test_the_environment_has_one_framework() -> None:
    assert platform.name() == OWN
    assert importlib.util.find_spec(OWN) is not None
    assert importlib.util.find_spec(OTHER) is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(OTHER)


def test_import_brings_no_framework_and_the_first_tensor_its_own_alone() -> None:
    assert in_fresh_python(f"import hyper_parallel; {LOADED}") == "[]"
    assert in_fresh_python(f"import hyper_parallel; hyper_parallel.platform.name(); {LOADED}") == "[]"
    assert in_fresh_python(f"import hyper_parallel; hyper_parallel.DTensor; {LOADED}") == f"['{OWN}']"


def test_the_platform_is_the_one_that_is_installed() -> None:
    assert in_fresh_python("import hyper_parallel.platform as p; print(p.name())") == OWN


def test_the_platform_is_the_one_that_is_imported() -> None:
    assert in_fresh_python(f"{STAND_IN}; import hyper_parallel.platform as p; print(p.name())") == OTHER


def test_the_variable_says_it_before_what_is_imported() -> None:
    program = f"{STAND_IN}; import hyper_parallel.platform as p; print(p.name())"
    assert in_fresh_python(program, platform=OWN) == OWN


def test_the_answer_never_changes() -> None:
    program = f"import hyper_parallel.platform as p; p.name(); {STAND_IN}; print(p.name())"
    assert in_fresh_python(program) == OWN


def test_a_variable_that_says_what_is_not_installed_raises() -> None:
    text = f"HYPER_PARALLEL_PLATFORM is '{OTHER}', which is not installed"
    program = "import hyper_parallel; hyper_parallel.DTensor"
    assert in_fresh_python(program, platform=OTHER) == f"hyper_parallel.errors.FailedPreconditionError: {text}"


def test_a_variable_that_is_neither_raises() -> None:
    text = "HYPER_PARALLEL_PLATFORM is 'jax' but must be 'torch' or 'mindspore'"
    program = "import hyper_parallel; hyper_parallel.DTensor"
    assert in_fresh_python(program, platform="jax") == f"hyper_parallel.errors.InvalidArgumentError: {text}"


def test_without_a_framework_the_error_says_what_to_install() -> None:
    # Python's -S leaves out what is installed, but not PYTHONPATH.
    assert in_fresh_python("import hyper_parallel; hyper_parallel.DTensor", "-S") == (
        "hyper_parallel.errors.FailedPreconditionError: hyper_parallel computes with PyTorch or MindSpore and neither "
        "is installed: pip install torch==2.13.0, or pip install mindspore==2.10.0"
    )


def test_every_public_name_is_there_or_raises_that_the_platform_lacks_it() -> None:
    given = {name: getattr(hyper_parallel, name) for name in hyper_parallel.__all__}
    lacking = [name for name, value in given.items() if is_lacking(value)]
    assert lacking == framework.NOT_OFFERED
    for name in lacking:
        text = f"hyper_parallel.{name} is not offered on MindSpore, only on torch"
        assert_raises(NotImplementedError, text, given[name])


def is_lacking(value: object) -> bool:
    return str(getattr(value, "__doc__", "")).startswith("Not offered on MindSpore")


def test_the_paths_of_the_specification_lead_to_the_platforms_own() -> None:
    from hyper_parallel.core.dtensor import dtensor, layout, placement_types  # noqa: PLC0415
    from hyper_parallel.platform import platform as of_platform  # noqa: PLC0415

    assert dtensor.DTensor is hyper_parallel.DTensor
    assert dtensor.distribute_tensor is hyper_parallel.distribute_tensor
    assert layout.Layout is hyper_parallel.Layout
    assert placement_types.RaggedShard is hyper_parallel.RaggedShard
    gather = of_platform.differentiable_variable_all_gather
    assert gather is platform.differentiable_variable_all_gather
