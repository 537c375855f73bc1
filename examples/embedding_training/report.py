"""What rank 0 prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from embedding_training.network import TextClassifier, parameters_of

_MEGABYTE = 1e6


@dataclass(frozen=True)
class Step:
    """One training step: the loss over all samples before it, and the seconds that it took."""

    loss: float
    seconds: float


Held = dict[str, dict[str, int]]
"""By parameter: how many elements a rank holds of it ("weight") and of each tensor of its optimizer's state."""


def print_task(file: Path, tensor: str, embedding: torch.Tensor, samples: Sequence[int]) -> None:
    """Says what is trained, and on how many samples each rank trains."""
    rows, columns = embedding.shape
    megabytes = embedding.numel() * embedding.element_size() / _MEGABYTE
    print(f"{file.name}: {tensor} [{rows}, {columns}], {megabytes:.1f} MB, under a head of two layers, by AdamW")
    print(f"{len(samples)} ranks, with {', '.join(map(str, samples))} of the {sum(samples)} samples", flush=True)


def print_shares(network: TextClassifier, held: Sequence[Held]) -> None:
    """How many elements of each parameter each rank holds, and of the optimizer's state in all.

    Args:
        network: The ragged network.
        held: What each rank holds.
    """
    ranks = [f"rank {rank}" for rank in range(len(held))]
    print(f"\n{_cells('parameter', 'shape', 'RaggedShard', ranks)}")
    for name, share in parameters_of(network).items():
        shape = " x ".join(map(str, share.shape))
        counts = [rank[name]["weight"] for rank in held]
        print(_cells(name, shape, str(share.placements[0]).removeprefix("RaggedShard"), counts))
    for what in next(iter(held[0].values())):
        counts = [sum(counts[what] for counts in rank.values()) for rank in held]
        print(_cells(f"all: {what}", "", "", counts))


def _cells(name: str, shape: str, placement: str, counts: Sequence[object]) -> str:
    return f"{name:<18}{shape:<13}{placement:<46}" + "".join(f"{count:>11}" for count in counts)


def print_steps(together: Sequence[Step], alone: Sequence[Step]) -> None:
    """Both trainings, step by step."""
    print(f"\n{'step':<6}{'loss, all ranks':>16}{'one process':>16}{'difference':>14}{'time':>12}{'one process':>14}")
    for number, (ours, theirs) in enumerate(zip(together, alone, strict=True), start=1):
        losses = f"{ours.loss:>16.6f}{theirs.loss:>16.6f}{abs(ours.loss - theirs.loss):>14.1e}"
        print(f"{number:<6}{losses}{ours.seconds:>10.2f} s{theirs.seconds:>12.2f} s")
    print()
