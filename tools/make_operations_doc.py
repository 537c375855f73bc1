#!/usr/bin/env python3
"""Prints docs/operations.md from the tables of operations in the built package.

PYTHONPATH=build/dev/python tools/make_operations_doc.py > docs/operations.md
"""

from __future__ import annotations

from hyper_parallel import _torch

HEAD = """# Operations on DTensors

Printed by `tools/make_operations_doc.py` from the tables that the library itself works by. `docs/design/operations.md`
says how a rule decides what moves and how results lie.

## On every layout, ragged ones too

Cells at the same place, on each rank's own part; nothing is communicated. Beside a ragged operand all others lie as it
does, are Replicate, or are one element. On normal layouts operands broadcast, and are redistributed where they lie
unlike. In-place forms and the `_foreach` forms of torch's optimizers are there too.

"""

MIDDLE = """
## On normal layouts

| operations | how they lie |
|---|---|
"""

TAIL = """
In Python every other operation on normal layouts runs through torch's own DTensor, is counted and logged
(`hyper_parallel.fallback_counts()`), or, with `HYPER_PARALLEL_STRICT=1`, raises. In C++ it raises.
"""


def is_own(name: str) -> bool:
    """Whether it is more than another form of an operation: in place, on lists, reversed."""
    return not name.endswith("_") and not name.startswith("_foreach")


def table() -> str:
    """The text of the file."""
    ruled = _torch.ruled_operations()
    ruled_names = {name for name, _ in ruled}
    everywhere = [f"`{name}`" for name in _torch.operation_names() if name not in ruled_names and is_own(name)]
    by_meaning: dict[str, list[str]] = {}
    for name, meaning in ruled:
        by_meaning.setdefault(meaning, []).append(f"`{name}`")
    rows = "".join(f"| {' '.join(names)} | {meaning} |\n" for meaning, names in by_meaning.items())
    return HEAD + " ".join(everywhere) + "\n" + MIDDLE + rows + TAIL


if __name__ == "__main__":
    print(table(), end="")
