"""The network, and how its parameters become ragged and are gathered for a forward."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.func import functional_call

from hyper_parallel import DeviceMesh, DTensor, RaggedShard, distribute_tensor

HIDDEN = 96
CLASSES = 10
_SEED = 20


class TextClassifier(nn.Module):
    """Tokens -> the mean of their embeddings -> two layers -> a score for each class."""

    def __init__(self, embedding: torch.Tensor) -> None:
        """Begins with this embedding, shared, and with the same random head wherever it is made."""
        super().__init__()
        torch.manual_seed(_SEED)
        self.embedding = nn.Embedding.from_pretrained(embedding, freeze=False)
        self.up = nn.Linear(embedding.shape[1], HIDDEN)
        self.down = nn.Linear(HIDDEN, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.down(torch.relu(self.up(self.embedding(tokens).mean(dim=1))))
        return scores


def shard(module: nn.Module, mesh: DeviceMesh, units: Sequence[int]) -> None:
    """Replaces each parameter by a ragged one of the same values: this rank keeps its share alone."""
    for child in module.modules():
        for name, whole in list(child.named_parameters(recurse=False)):
            share = distribute_tensor(whole.detach(), mesh, [ragged_placement(whole.shape, units)])
            child.register_parameter(name, nn.Parameter(share))


def ragged_placement(shape: Sequence[int], units: Sequence[int]) -> RaggedShard:
    """Cuts after the first dims whose cells the units divide; where none does, whole rows about as the units say."""
    for count in range(1, len(shape) + 1):
        if math.prod(shape[:count]) % sum(units) == 0:
            return RaggedShard(tuple(range(count)), tuple(units))
    cuts = [shape[0] * units_before // sum(units) for units_before in itertools.accumulate(units, initial=0)]
    return RaggedShard((0,), tuple(end - begin for begin, end in itertools.pairwise(cuts)))


def gathered_call(module: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """The module's forward with the whole of each parameter, differentiable."""
    weights = {name: share.full_tensor() for name, share in parameters_of(module).items()}
    result: torch.Tensor = functional_call(module, weights, (inputs,))
    return result


def parameters_of(module: nn.Module) -> dict[str, DTensor]:
    """The ragged parameters by name."""
    return {name: share for name, share in module.named_parameters() if isinstance(share, DTensor)}
