"""Trains a small network over the embedding of a published model, every parameter spread unevenly over the ranks.

    python examples/train_embedding.py --file model.safetensors [--ranks 4] [--units 1,2,0,3] [--steps 5]

starts itself under torchrun; `torchrun --nproc-per-node 4 examples/train_embedding.py --file model.safetensors` is the
same.

Each parameter is a RaggedShard DTensor: a rank keeps its share of the weight, of its gradient and of AdamW's state; one
rank of the default units keeps nothing. A forward gathers the weights, its backward leaves each rank its share of the
gradients' sum. Every rank trains on samples of its own. At the end the parameters are compared with those of plain
torch, trained by one process on all samples.

Ends with "equal to one process: 5 of 5 parameters" and exit code 0, or with fewer and 1; 2 for wrong arguments.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from embedding_training import report
from embedding_training.comparison import Difference, difference, verdict
from embedding_training.model_file import map_matrix
from embedding_training.network import TextClassifier, gathered_call, parameters_of, shard
from embedding_training.options import Options, parse_options
from embedding_training.samples import Samples, draw_samples
from torch.nn.functional import cross_entropy

from hyper_parallel import init_device_mesh

LEARNING_RATE = 0.003
GROUP_TIMEOUT = timedelta(seconds=120)

Predict = Callable[[torch.Tensor], torch.Tensor]


def main() -> int:
    options = parse_options(sys.argv[1:])
    if "RANK" not in os.environ:
        start_ranks(options)
    dist.init_process_group("gloo", timeout=GROUP_TIMEOUT)
    try:
        return run_rank(options)
    finally:
        dist.destroy_process_group()


def start_ranks(options: Options) -> None:
    """Becomes the torchrun that runs this program on every rank; does not return."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    variables = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    os.execve(sys.executable, [*torchrun, "--nproc-per-node", str(options.ranks), *sys.argv], os.environ | variables)


def run_rank(options: Options) -> int:
    """Trains on all ranks together and, on rank 0, alone; returns the exit code."""
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (options.ranks,), mesh_dim_names=("fsdp",))
    rank = mesh.get_rank()
    embedding = map_matrix(options.file, options.tensor)
    samples = draw_samples(embedding)
    if rank == 0:
        parts = [len(samples.of_rank(each, options.ranks)) for each in range(options.ranks)]
        report.print_task(options.file, options.tensor, embedding, parts)

    # The file is mapped: of the embedding a rank copies its own share.
    network = TextClassifier(embedding)
    shard(network, mesh, options.units)
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE)
    together = train_together(network, optimizer, samples, options.steps)
    held = elements_on_all_ranks(network, optimizer)

    differences: list[Difference] = []
    alone = TextClassifier(embedding.clone()) if rank == 0 else None
    if alone is not None:
        report.print_shares(network, held)
        report.print_steps(together, train_alone(alone, samples, options.steps))
    for name, share in parameters_of(network).items():
        whole = share.full_tensor().detach()
        if alone is not None:
            differences.append(difference(name, whole, alone.get_parameter(name).detach()))
    if rank == 0:
        print(verdict(differences), flush=True)
    failed = torch.tensor(not all(each.equal for each in differences), dtype=torch.int)
    dist.broadcast(failed, src=0)
    return int(failed)


def train_together(
    network: TextClassifier, optimizer: torch.optim.Optimizer, samples: Samples, steps: int
) -> list[report.Step]:
    """Trains the ragged network, each rank on its part of the samples."""
    mine = samples.of_rank(dist.get_rank(), dist.get_world_size())
    taken = []
    for _ in range(steps):
        dist.barrier()
        begin = time.perf_counter()
        loss = train_step(lambda tokens: gathered_call(network, tokens), optimizer, mine, len(samples))
        dist.all_reduce(loss)
        taken.append(report.Step(loss.item(), time.perf_counter() - begin))
    return taken


def train_alone(network: TextClassifier, samples: Samples, steps: int) -> list[report.Step]:
    """Trains the plain network on all samples."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE)
    taken = []
    for _ in range(steps):
        begin = time.perf_counter()
        loss = train_step(network, optimizer, samples, len(samples))
        taken.append(report.Step(loss.item(), time.perf_counter() - begin))
    return taken


def train_step(predict: Predict, optimizer: torch.optim.Optimizer, samples: Samples, of_all: int) -> torch.Tensor:
    """One step on these of `of_all` samples; returns their part of the mean loss."""
    optimizer.zero_grad()
    # The ranks' gradients are summed, so each divides its sum by the number of samples of all.
    loss = cross_entropy(predict(samples.tokens), samples.labels, reduction="sum") / of_all
    loss.backward()
    optimizer.step()
    return loss.detach()


def elements_on_all_ranks(network: TextClassifier, optimizer: torch.optim.Optimizer) -> list[report.Held]:
    """Counts what each rank holds; raises where a state tensor is not of its share's size."""
    mine: report.Held = {}
    for name, share in parameters_of(network).items():
        state = {what: optimizer.state[share][what].local_numel for what in ("exp_avg", "exp_avg_sq")}
        mine[name] = {"weight": share.local_numel} | state
        for what, count in state.items():
            if count != share.local_numel:
                raise AssertionError(f"{what} of {name} has {count} elements but the share has {share.local_numel}")
    held: list[report.Held] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(held, mine)
    return held


if __name__ == "__main__":
    sys.exit(main())
