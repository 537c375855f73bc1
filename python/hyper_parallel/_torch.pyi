"""
The libtorch layer of hyper_parallel.
"""
from __future__ import annotations
import collections.abc
import hyper_parallel._core
import hyper_parallel.device_mesh
import hyper_parallel.dtensor
import hyper_parallel.layout
import torch
import torch.distributed.distributed_c10d
import typing
__all__: list[str] = ['Communicator', 'GroupExchange', 'TensorLoadPlanner', 'TensorSavePlanner', 'WeakDTensor', 'begin_replay', 'call', 'differentiable_all_to_all_single', 'differentiable_variable_all_gather', 'differentiable_variable_reduce_scatter', 'distribute_tensor', 'dropout', 'dropout_', 'empty', 'end_replay', 'follow_local', 'from_local', 'full', 'full_tensor', 'gradient_local', 'install_attribute', 'install_operators', 'is_member', 'item', 'layout', 'local', 'manual_seed', 'mesh', 'ones', 'operation_names', 'placements', 'placements_text', 'rand', 'rand_like', 'randn', 'randn_like', 'rank', 'redistribute', 'register_fallback', 'register_from_local', 'register_handler', 'register_metadata', 'register_operation', 'restore', 'rng_state', 'row', 'ruled_operations', 'set_base', 'set_data', 'set_rng_state', 'set_wrapper_class', 'shape', 'to_local', 'torch_function', 'wrap_gradient', 'wrap_like', 'zeros']
class Communicator:
    """
    A mesh whose ranks can talk to each other.
    """
    def __init__(self, group: torch.distributed.distributed_c10d.ProcessGroup, mesh: hyper_parallel._core.DeviceMesh) -> None:
        """
        Args:
            group: A process group that numbers ranks as the job does and holds all of the mesh.
            mesh: The mesh.

        Raises:
            InvalidArgumentError: The mesh has a rank outside the group.
        """
    def with_mesh(self, mesh: hyper_parallel._core.DeviceMesh) -> Communicator:
        """
        The same group and plans for another mesh; raises InvalidArgumentError if it has a rank outside the group.
        """
    @property
    def is_member(self) -> bool:
        """
        Whether this process lies in the mesh.
        """
    @property
    def rank(self) -> int:
        """
        This process's rank in the job.
        """
class WeakDTensor:
    """
    A DTensor that may go; calling it gives the DTensor or None.
    """
    def __call__(self) -> hyper_parallel.dtensor.DTensor | None:
        ...
    def __init__(self, tensor: hyper_parallel.dtensor.DTensor) -> None:
        ...
class TensorSavePlanner(hyper_parallel._core.SavePlanner):
    """
    Plans and reads DTensors and plain tensors for a save.
    """
    def __init__(self, tensors: dict, values: dict, structure: typing.Any) -> None:
        """
        Args:
            tensors: DTensors and tensors by name.
            values: Everything else by name.
            structure: How the names nest.
        """
    def build_local_plan(self) -> hyper_parallel._core.SavePlan:
        """
        What this rank holds.

        Raises:
            InvalidArgumentError: A Partial DTensor.
            ArgumentTypeError: A dtype or a kind of tensor that cannot be stored.
        """
    def get_data(self, item: hyper_parallel._core.WriteItem) -> torch.Tensor:
        """
        The box as a CPU tensor of its sizes; shared where it can be.
        """
class TensorLoadPlanner(hyper_parallel._core.LoadPlanner):
    """
    Fills DTensors and plain tensors in place.
    """
    def __init__(self, tensors: dict, allow_missing: collections.abc.Sequence[str], allow_cast: collections.abc.Sequence[str]) -> None:
        """
        Args:
            tensors: DTensors and tensors by name.
            allow_missing: Names or patterns that need not be stored.
            allow_cast: Names or patterns whose dtype may differ from the stored one.
        """
    def acquire_tensor(self, item: hyper_parallel._core.ReadItem) -> torch.Tensor:
        """
        Where the item's cells go: a tensor of its lengths that shares the target's memory.
        """
    def build_local_plan(self, metadata: hyper_parallel._core.CheckpointMetadata) -> hyper_parallel._core.LoadPlan:
        """
        What fills this rank's targets; does not touch them.
        """
    def finish(self) -> None:
        """
        Copies what was read beside the targets.
        """
class GroupExchange(hyper_parallel._core.Exchange):
    """
    An exchange over a process group.
    """
    def __init__(self, group: torch.distributed.distributed_c10d.ProcessGroup) -> None:
        """
        Args:
            group: A process group with a backend for CPU tensors.

        Raises:
            FailedPreconditionError: It has none.
        """
def begin_replay(state: str) -> str:
    """
    Goes back for a forward pass that is computed again; returns what `end_replay` takes.
    """
def call(operation: str, *args, **kwargs) -> typing.Any:
    """
    Runs an elementwise operation by name.
    """
def differentiable_all_to_all_single(input_tensor: torch.Tensor, input_splits: collections.abc.Sequence[int], output_splits: collections.abc.Sequence[int], group: torch.distributed.distributed_c10d.ProcessGroup) -> torch.Tensor:
    """
    Exchanges rows between all members.
    """
def differentiable_variable_all_gather(input_tensor: torch.Tensor, output_splits: collections.abc.Sequence[int], group: torch.distributed.distributed_c10d.ProcessGroup) -> torch.Tensor:
    """
    Concatenates the members' rows, unequally many, on every member.
    """
def differentiable_variable_reduce_scatter(input_tensor: torch.Tensor, input_splits: collections.abc.Sequence[int], group: torch.distributed.distributed_c10d.ProcessGroup) -> torch.Tensor:
    """
    Sums the members' tensors and keeps this member's rows.
    """
def distribute_tensor(tensor: torch.Tensor, device_mesh: hyper_parallel.device_mesh.DeviceMesh, placements: collections.abc.Sequence[hyper_parallel._core.Placement], src_data_rank: int | None = None) -> hyper_parallel.dtensor.DTensor:
    """
    Spreads a whole tensor over the mesh.
    """
def dropout(input: hyper_parallel.dtensor.DTensor, p: typing.SupportsFloat | typing.SupportsIndex, training: bool) -> hyper_parallel.dtensor.DTensor:
    """
    Zeroes elements with probability p; the very same object where nothing is dropped.
    """
def dropout_(input: hyper_parallel.dtensor.DTensor, p: typing.SupportsFloat | typing.SupportsIndex, training: bool) -> hyper_parallel.dtensor.DTensor:
    """
    The same in place.
    """
def empty(size: collections.abc.Sequence[int], device_mesh: hyper_parallel.device_mesh.DeviceMesh, placements: collections.abc.Sequence[hyper_parallel._core.Placement], dtype: torch.dtype | None = None, device: torch.device | None = None, requires_grad: bool = False) -> hyper_parallel.dtensor.DTensor:
    """
    A new DTensor of whatever the memory holds.
    """
def end_replay(before: str) -> None:
    """
    Ends a replay.
    """
def follow_local(tensor: hyper_parallel.dtensor.DTensor) -> None:
    """
    Reads the local tensor's place in the graph again.
    """
def from_local(local_tensor: torch.Tensor, device_mesh: hyper_parallel.device_mesh.DeviceMesh, placements: collections.abc.Sequence[hyper_parallel._core.Placement], shape: collections.abc.Sequence[int] | None = None) -> hyper_parallel.dtensor.DTensor:
    """
    Wraps this rank's part of a tensor of logical shape `shape`.
    """
def full(size: collections.abc.Sequence[int], fill_value: bool | int | float | complex, device_mesh: hyper_parallel.device_mesh.DeviceMesh, placements: collections.abc.Sequence[hyper_parallel._core.Placement], dtype: torch.dtype | None = None, device: torch.device | None = None, requires_grad: bool = False) -> hyper_parallel.dtensor.DTensor:
    """
    A new DTensor of one value.
    """
def full_tensor(tensor: hyper_parallel.dtensor.DTensor, grad_placements: collections.abc.Sequence[hyper_parallel._core.Placement] | None = None) -> torch.Tensor:
    """
    The whole tensor on every rank of the mesh.
    """
def gradient_local(tensor: hyper_parallel.dtensor.DTensor, gradient: hyper_parallel.dtensor.DTensor) -> torch.Tensor:
    """
    The local tensor of a gradient of `tensor`, laid out as its gradients are.
    """
def install_attribute(wrapper_class: type, name: str, source: str) -> None:
    """
    Lets C++ answer an attribute of the class: from the "wrapper", the "local" tensor or the "gradient".
    """
def install_operators(wrapper_class: type) -> None:
    """
    Lets C++ run Python's operators on the class.
    """
def is_member(tensor: hyper_parallel.dtensor.DTensor) -> bool:
    """
    Whether this rank lies in the tensor's mesh.
    """
def item(tensor: hyper_parallel.dtensor.DTensor) -> bool | int | float | complex:
    """
    The value of a tensor of one element.
    """
def layout(tensor: hyper_parallel.dtensor.DTensor) -> hyper_parallel.layout.Layout:
    """
    How the tensor lies.
    """
def local(tensor: hyper_parallel.dtensor.DTensor) -> torch.Tensor:
    """
    This rank's storage, inside the graph.
    """
def manual_seed(seed: int, device_mesh: hyper_parallel.device_mesh.DeviceMesh | None = None) -> None:
    """
    Starts all meshes, or one, again from a seed of 64 bits.
    """
def mesh(tensor: hyper_parallel.dtensor.DTensor) -> hyper_parallel.device_mesh.DeviceMesh:
    """
    The mesh that the tensor lies on.
    """
def ones(size: collections.abc.Sequence[int], device_mesh: hyper_parallel.device_mesh.DeviceMesh, placements: collections.abc.Sequence[hyper_parallel._core.Placement], dtype: torch.dtype | None = None, device: torch.device | None = None, requires_grad: bool = False) -> hyper_parallel.dtensor.DTensor:
    """
    A new DTensor of ones.
    """
def operation_names() -> list[str]:
    """
    All elementwise operations, sorted.
    """
def placements(tensor: hyper_parallel.dtensor.DTensor) -> tuple[hyper_parallel._core.Placement, ...]:
    """
    One placement for each mesh dim.
    """
def placements_text(tensor: hyper_parallel.dtensor.DTensor) -> str:
    """
    The placements as text, which `restore` reads.
    """
def rand(size: collections.abc.Sequence[int], device_mesh: hyper_parallel.device_mesh.DeviceMesh, placements: collections.abc.Sequence[hyper_parallel._core.Placement], dtype: torch.dtype | None = None, device: torch.device | None = None, requires_grad: bool = False) -> hyper_parallel.dtensor.DTensor:
    """
    A new DTensor, uniform in [0, 1).
    """
def rand_like(input: hyper_parallel.dtensor.DTensor, dtype: torch.dtype | None = None, requires_grad: bool = False) -> hyper_parallel.dtensor.DTensor:
    """
    A new DTensor laid out as another, uniform in [0, 1).
    """
def randn(size: collections.abc.Sequence[int], device_mesh: hyper_parallel.device_mesh.DeviceMesh, placements: collections.abc.Sequence[hyper_parallel._core.Placement], dtype: torch.dtype | None = None, device: torch.device | None = None, requires_grad: bool = False) -> hyper_parallel.dtensor.DTensor:
    """
    A new DTensor, standard normal.
    """
def randn_like(input: hyper_parallel.dtensor.DTensor, dtype: torch.dtype | None = None, requires_grad: bool = False) -> hyper_parallel.dtensor.DTensor:
    """
    A new DTensor laid out as another, standard normal.
    """
def rank(tensor: hyper_parallel.dtensor.DTensor) -> int:
    """
    The rank whose share this is.
    """
def redistribute(tensor: hyper_parallel.dtensor.DTensor, device_mesh: hyper_parallel.device_mesh.DeviceMesh | None, placements: collections.abc.Sequence[hyper_parallel._core.Placement]) -> hyper_parallel.dtensor.DTensor:
    """
    The same tensor laid out otherwise; the very same object for an equal layout.
    """
def register_fallback(callable: collections.abc.Callable) -> None:
    """
    Lets callable(name, function, args, kwargs) answer every function of torch that has no entry where no argument is ragged; NotImplemented refuses.
    """
def register_from_local(function: typing.Any, role: str = 'call') -> None:
    """
    Lets a function of torch be answered by the local tensor.
    """
def register_handler(function: typing.Any, handler: collections.abc.Callable, role: str = 'call') -> None:
    """
    Lets handler(function, args, kwargs) answer a function of torch.
    """
def register_metadata(function: typing.Any, role: str = 'call') -> None:
    """
    Lets a function of torch be answered by the wrapper.
    """
def register_operation(function: typing.Any, operation: str) -> None:
    """
    Makes a function of torch run an elementwise operation.
    """
def restore(local: torch.Tensor, mesh: hyper_parallel._core.DeviceMesh, placements: str, shape: collections.abc.Sequence[int], rank: int) -> hyper_parallel.dtensor.DTensor:
    """
    A DTensor as rank `rank` pickled it; makes no process group.
    """
def rng_state() -> str:
    """
    Where the random numbers of this process stand, as text.
    """
def row(tensor: hyper_parallel.dtensor.DTensor, index: int) -> hyper_parallel.dtensor.DTensor:
    """
    x[i] of a tensor sharded by Shard(0).
    """
def ruled_operations() -> list[tuple[str, str]]:
    """
    The operations that have a rule, each with the rule's meaning, in the table's order.
    """
def set_base(view: hyper_parallel.dtensor.DTensor, base: hyper_parallel.dtensor.DTensor) -> None:
    """
    Tells that one's local tensor is a view of the other's.
    """
def set_data(tensor: hyper_parallel.dtensor.DTensor, data: hyper_parallel.dtensor.DTensor) -> None:
    """
    tensor.data = data.
    """
def set_rng_state(state: str) -> None:
    """
    Goes back to what `rng_state` said.
    """
def set_wrapper_class(wrapper_class: type) -> None:
    """
    Names the class that wrappers are instances of.
    """
def shape(tensor: hyper_parallel.dtensor.DTensor) -> tuple[int, ...]:
    """
    The logical shape.
    """
def to_local(tensor: hyper_parallel.dtensor.DTensor, grad_placements: collections.abc.Sequence[hyper_parallel._core.Placement] | None = None) -> torch.Tensor:
    """
    This rank's part for use outside.
    """
def torch_function(func, types, args, kwargs = None):
    """
    Runs a function of torch on DTensors.
    """
def wrap_gradient(tensor: hyper_parallel.dtensor.DTensor, local: torch.Tensor) -> hyper_parallel.dtensor.DTensor:
    """
    A local tensor as the gradient of `tensor`.
    """
def wrap_like(tensor: hyper_parallel.dtensor.DTensor, local: torch.Tensor) -> hyper_parallel.dtensor.DTensor:
    """
    A local tensor as another tensor of the same layout and shape.
    """
def zeros(size: collections.abc.Sequence[int], device_mesh: hyper_parallel.device_mesh.DeviceMesh, placements: collections.abc.Sequence[hyper_parallel._core.Placement], dtype: torch.dtype | None = None, device: torch.device | None = None, requires_grad: bool = False) -> hyper_parallel.dtensor.DTensor:
    """
    A new DTensor of zeros.
    """
