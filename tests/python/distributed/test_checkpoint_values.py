"""What a state dict holds beside tensors and how it nests comes back with its types; training goes on from it."""

from __future__ import annotations

import math
import re
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import strategies as st
from torch import nn

from hyper_parallel import (
    CheckpointError,
    DTensor,
    InvalidArgumentError,
    RaggedShard,
    Shard,
    checkpoint,
    distribute_tensor,
)
from support.checkpoints import bits, local_of, metadata_of, random_bits
from support.checks import assert_equal, make_mesh, whole_of
from support.drawing import drawn
from support.ranks import ranks
from support.state_dicts import expected_entries, has_below, state_dicts, typed
from support.values import numbered
from support.worker import Rank

VALUES: dict[str, Any] = {
    "None": None,
    "True": True,
    "False": False,
    "0": 0,
    "1": 1,
    "-1": -1,
    "int64 max": 2**63 - 1,
    "int64 min": -(2**63),
    "over int64": 2**63,
    "under int64": -(2**63) - 1,
    "2**100": 2**100,
    "-2**100": -(2**100),
    "as many digits as Python prints": 10**4300 - 1,
    "0.0": 0.0,
    "-0.0": -0.0,
    "1.0": 1.0,
    "0.1": 0.1,
    "1e22": 1e22,
    "smallest float": 5e-324,
    "largest float": 1.7976931348623157e308,
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "complex": 1.5 - 2j,
    "complex of signed zeros": complex(-0.0, -0.0),
    "complex of nan and inf": complex(math.nan, -math.inf),
    "no text": "",
    "text like JSON": '{"int": "5"}\\"\n',
    "text": "ключ \U0001f600 \0 \x7f\u2028",
    "long text": "x" * 100_000,
    "no bytes": b"",
    "bytes": bytes(range(256)),
    "empty list": [],
    "empty tuple": (),
    "empty dict": {},
    "list": [1, True, 1.0, "1", b"1", None, 1j],
    "tuple": (1, (2, (3,)), [4, ()]),
    "betas": (0.9, 0.999),
    "dict in a list": [{"lr": 0.1, "params": [0, 1], "betas": (0.9, 0.999), "foreach": None}],
    "keys of all types": [{None: 0, True: 1, 2: 2, 0.5: 3, 1j: 4, "s": 5, b"b": 6, (1, (None, "x")): 7, 2**70: 8}],
    "lists that look like tagged values": [[["dict"]], {"tuple": [1]}, {"int": "5"}],
}


@pytest.mark.parametrize("kind", list(VALUES))
def test_a_value_comes_back_with_its_type(kind: str, tmp_path: Path) -> None:
    value = VALUES[kind]
    checkpoint.save({"deep": {"v": value}, "v": value}, tmp_path / "d")
    assert typed(checkpoint.read(tmp_path / "d")) == typed({"deep": {"v": value}, "v": value})
    state: dict[str, Any] = {"deep": {"v": "before"}, "v": "before"}
    checkpoint.load(state, tmp_path / "d")
    assert typed(state) == typed({"deep": {"v": value}, "v": value})


@ranks(2)
def test_values_come_back_on_every_rank(rank: Rank, tmp_path: Path) -> None:
    checkpoint.save(VALUES, tmp_path / "d")
    assert typed(checkpoint.read(tmp_path / "d")) == typed(VALUES)
    state: dict[str, Any] = dict.fromkeys(VALUES, rank.index)
    checkpoint.load(state, tmp_path / "d")
    assert typed(state) == typed(VALUES)


def test_containers_come_back_as_they_nest(tmp_path: Path) -> None:
    w = numbered((2, 3))
    state = {
        "model": OrderedDict(w=w, scale=0.5),
        "l": [w + 1, (w + 2, "x", [w + 3, 5]), {"k": w + 4}],
        "t": (w + 5,),
        7: {-1: w + 6, 2**70: None, "7": 1},
        "e": [w + 7, {}, [], ()],
    }
    checkpoint.save(state, tmp_path / "d")
    loaded = checkpoint.read(tmp_path / "d")
    assert shown(loaded) == shown({**state, "model": dict(state["model"])})


def test_the_order_of_keys_is_kept(tmp_path: Path) -> None:
    state = {key: {"b": 1, "a": 2, 3: torch.zeros(1)} for key in ("z", "a", "m", 5, 1)}
    checkpoint.save(state, tmp_path / "d")
    loaded = checkpoint.read(tmp_path / "d")
    assert list(loaded) == ["z", "a", "m", 5, 1]
    assert list(loaded["z"]) == ["b", "a", 3]


def test_an_empty_state_is_a_checkpoint(tmp_path: Path) -> None:
    checkpoint.save({}, tmp_path / "d")
    assert checkpoint.read(tmp_path / "d") == {}
    checkpoint.load({}, tmp_path / "d")


def test_load_fills_the_containers_themselves(tmp_path: Path) -> None:
    checkpoint.save({"m": {"w": numbered((3,)), "n": 1}, "l": [numbered((2,)), 2], "t": (numbered((4,)), 3)}, tmp_path)
    w, x, y = torch.zeros(3), torch.zeros(2), torch.zeros(4)
    m, items = OrderedDict(w=w, n=None), [x, None]
    state = {"m": m, "l": items, "t": (y, None)}
    assert checkpoint.load(state, tmp_path) is None
    assert state["m"] is m
    assert state["l"] is items
    assert m["w"] is w
    assert items[0] is x
    assert state["t"][0] is y
    assert w.tolist() == [0, 1, 2]
    assert m["n"] == 1
    assert items[1] == 2
    assert state["t"][1] == 3
    assert type(state["t"]) is tuple


@ranks(2)
def test_ranks_may_hold_entries_of_their_own(rank: Rank, tmp_path: Path) -> None:
    mesh = make_mesh(2)
    state = {
        "shared": distribute_tensor(numbered((4,)), mesh, [Shard(0)]),
        "loader": {f"rank{rank.index}": {"position": 10 + rank.index, "order": torch.full((2,), rank.index)}},
        "step": 5,
    }
    checkpoint.save(state, tmp_path / "d")
    loaded = checkpoint.read(tmp_path / "d")
    assert set(loaded["loader"]) == {"rank0", "rank1"}
    for other in (0, 1):
        assert loaded["loader"][f"rank{other}"]["position"] == 10 + other
        assert loaded["loader"][f"rank{other}"]["order"].tolist() == [other, other]
    mine: dict[str, Any] = {
        "shared": distribute_tensor(torch.zeros(4), mesh, [RaggedShard((0,), (1, 3))]),
        "loader": {f"rank{rank.index}": {"position": 0, "order": torch.zeros(2, dtype=torch.int64)}},
    }
    if rank.index == 1:
        mine["step"] = 0  # wanted by one rank alone, so no extra entry
    checkpoint.load(mine, tmp_path / "d")
    assert mine["loader"][f"rank{rank.index}"]["position"] == 10 + rank.index
    assert mine["loader"][f"rank{rank.index}"]["order"].tolist() == [rank.index] * 2
    assert mine.get("step", 5) == 5
    assert_equal(whole_of(mine["shared"]), numbered((4,)))


@ranks(2)
def test_of_a_value_that_differs_the_lowest_ranks_is_stored(rank: Rank, tmp_path: Path) -> None:
    state: dict[str, Any] = {"everywhere": rank.index, "seed": [rank.index, "x"]}
    if rank.index == 1:
        state["late"] = 7
    checkpoint.save(state, tmp_path / "d")
    assert checkpoint.read(tmp_path / "d") == {"everywhere": 0, "seed": [0, "x"], "late": 7}


def test_the_metadata_is_json_and_not_pickle(tmp_path: Path) -> None:
    checkpoint.save({"w": torch.ones(2), "v": VALUES}, tmp_path / "d")
    metadata = metadata_of(tmp_path / "d")
    assert metadata["format"] == "hyper_parallel.checkpoint"
    assert metadata["version"] == 1
    assert list(metadata["tensors"]) == ["w"]


# Any state dict


def small_tensors() -> st.SearchStrategy[torch.Tensor]:
    shapes = st.lists(st.integers(0, 3), max_size=2).map(tuple)
    return st.builds(random_bits, shapes, st.sampled_from([torch.float32, torch.int8, torch.bool]), st.integers(0, 9))


def is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def shown(value: Any) -> Any:
    """As `typed`, tensors by their dtype, shape and bits."""
    if isinstance(value, torch.Tensor):
        return ("tensor", value.dtype, tuple(value.shape), bits(value))
    if isinstance(value, dict):
        return (type(value), [(typed(key), shown(item)) for key, item in value.items()])
    if isinstance(value, list | tuple):
        return (type(value), [shown(item) for item in value])
    return typed(value)


def emptied(value: Any) -> Any:
    """The same nesting with zeros for tensors, and other values."""
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value)
    if isinstance(value, dict) and value:
        return {key: emptied(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and has_below(value, is_tensor):
        return type(value)(emptied(item) for item in value)
    return "before"


@drawn(examples=150, state=state_dicts(small_tensors()))
def test_any_state_dict_comes_back(state: dict[Any, Any]) -> None:
    names = [name for name, _ in expected_entries(state, is_tensor)]
    with tempfile.TemporaryDirectory() as folder:
        if len(set(names)) < len(names):
            with pytest.raises(InvalidArgumentError, match="two entries of one name"):
                checkpoint.save(state, folder)
            assert list(Path(folder).iterdir()) == []
            return
        checkpoint.save(state, folder)
        assert shown(checkpoint.read(folder)) == shown(state)
        target = {key: emptied(item) for key, item in state.items()}
        checkpoint.load(target, folder)
        assert shown(target) == shown(state)


# Training

STEPS = 5
Factory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Factory] = {
    "foreach": lambda parameters: torch.optim.AdamW(parameters, lr=0.05, weight_decay=0.1, foreach=True),
    "loop": lambda parameters: torch.optim.AdamW(parameters, lr=0.05, weight_decay=0.1, foreach=False),
    "tensor lr": lambda parameters: torch.optim.AdamW(parameters, lr=torch.tensor(0.05), foreach=False),
}
UNITS = {"same units": ((1, 2), (0, 3)), "other units": ((3, 0), (2, 4))}


class Training:
    """A model of two ragged parameters and its optimizer."""

    def __init__(self, make: Factory, units: tuple[tuple[int, int], tuple[int, int]], *, zeros: bool = False) -> None:
        mesh = make_mesh(2)
        wholes = torch.sin(numbered((6, 4))), torch.cos(numbered((6,)))
        self.weight, self.bias = (
            nn.Parameter(distribute_tensor(whole * (not zeros), mesh, [RaggedShard((0,), part)]))
            for whole, part in zip(wholes, units, strict=True)
        )
        self.optimizer = make([self.weight, self.bias])

    def run(self, rank: Rank, steps: range) -> None:
        for step in steps:
            self.optimizer.zero_grad()
            data = torch.sin(numbered((5, 4)) * (rank.index + 1) + step)
            (data @ self.weight.full_tensor().t() + self.bias.full_tensor()).tanh().square().mean().backward()
            self.optimizer.step()

    def make_state(self) -> None:
        """Lets the optimizer make its state, of whatever values."""
        for parameter in (self.weight, self.bias):
            parameter.grad = torch.zeros_like(parameter)
        self.optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        return {"model": {"weight": self.weight, "bias": self.bias}, "optimizer": self.optimizer.state_dict()}


@pytest.mark.parametrize("units", list(UNITS))
@pytest.mark.parametrize("name", list(OPTIMIZERS))
@ranks(2)
def test_training_resumed_is_training_uninterrupted_bit_for_bit(
    rank: Rank, name: str, units: str, tmp_path: Path
) -> None:
    whole = Training(OPTIMIZERS[name], UNITS["same units"])
    whole.run(rank, range(STEPS))

    first = Training(OPTIMIZERS[name], UNITS["same units"])
    first.run(rank, range(2))
    checkpoint.save({**first.state_dict(), "step": 2}, tmp_path / "d")

    resumed = Training(OPTIMIZERS[name], UNITS[units], zeros=True)
    resumed.make_state()
    state = {**resumed.state_dict(), "step": 0}
    checkpoint.load(state, tmp_path / "d")
    resumed.optimizer.load_state_dict(state["optimizer"])
    resumed.run(rank, range(state["step"], STEPS))

    for there, here in ((whole.weight, resumed.weight), (whole.bias, resumed.bias)):
        assert bits(whole_of(here)) == bits(whole_of(there))
        for key, value in whole.optimizer.state[there].items():
            mine = resumed.optimizer.state[here][key]
            assert type(mine) is type(value)
            if isinstance(mine, DTensor):
                assert mine.placements == here.placements
                assert bits(whole_of(mine)) == bits(whole_of(value))
            else:
                assert bits(mine) == bits(value)
    if units == "same units":
        assert bits(local_of(resumed.weight)) == bits(local_of(whole.weight))


@ranks(2)
def test_an_optimizer_without_state_does_not_pass_for_one_with(rank: Rank, tmp_path: Path) -> None:
    first = Training(OPTIMIZERS["foreach"], UNITS["same units"])
    first.run(rank, range(1))
    checkpoint.save(first.state_dict(), tmp_path / "d")
    fresh = Training(OPTIMIZERS["foreach"], UNITS["same units"], zeros=True)
    with pytest.raises(ValueError, match=r"optimizer\.state"):
        checkpoint.load(fresh.state_dict(), tmp_path / "d")
    assert (local_of(fresh.weight) == 0).all()
    dist.barrier()
    # What `read` gives needs no state to fill: plain tensors, whole.
    loaded = checkpoint.read(tmp_path / "d")["optimizer"]
    assert set(loaded["state"]) == {0, 1}
    assert loaded["state"][0]["exp_avg"].shape == (6, 4)
    assert loaded["param_groups"][0]["betas"] == (0.9, 0.999)
    assert loaded["param_groups"][0]["params"] == [0, 1]


@pytest.mark.parametrize("place", ["values", "structure"])
def test_a_stored_dict_that_python_cannot_hold_is_named(place: str, tmp_path: Path) -> None:
    checkpoint.save({"v": {"k": 1}}, tmp_path / "d")
    unhashable = '{"dict":[[[1],"v.k"]]}'
    text = re.sub(r',\n"crc32c":\d+', "", (tmp_path / "d" / ".metadata").read_text())
    if place == "values":
        text = text.replace('"v.k":1', f'"v.k":{unhashable}')
    else:
        text = re.sub(r'"structure":[^\n]*', f'"structure":{unhashable}}}', text)
    (tmp_path / "d" / ".metadata").write_text(text)
    with pytest.raises(CheckpointError, match=r"is a value that Python cannot hold: TypeError: unhashable"):
        checkpoint.read(tmp_path / "d")
