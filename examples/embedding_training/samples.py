"""What the network is trained on: random texts, labelled by a function of the embedding that it can learn."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from embedding_training.network import CLASSES

SAMPLES = 96
TOKENS = 16
_SEED = 3


@dataclass(frozen=True)
class Samples:
    """Texts [n, TOKENS] and their labels [n]."""

    tokens: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def of_rank(self, rank: int, ranks: int) -> Samples:
        """The part that this rank trains on: the later the rank, the more."""
        begin, end = (len(self) * index * (index + 1) // (ranks * (ranks + 1)) for index in (rank, rank + 1))
        return Samples(self.tokens[begin:end], self.labels[begin:end])


def draw_samples(embedding: torch.Tensor) -> Samples:
    """The same samples on every rank: token numbers, and the class that a random projection of their mean says."""
    generator = torch.Generator().manual_seed(_SEED)
    tokens = torch.randint(len(embedding), (SAMPLES, TOKENS), generator=generator)
    projection = torch.randn(embedding.shape[1], CLASSES, generator=generator)
    return Samples(tokens, (embedding[tokens].mean(dim=1) @ projection).argmax(dim=1))
