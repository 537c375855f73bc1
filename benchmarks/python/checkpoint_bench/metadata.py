"""Reading the metadata of a very large checkpoint."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator

from paired.measure import quartiles
from paired.table import size_text, time_text

from checkpoint_bench.bench import Bench, Sizes
from checkpoint_bench.line import Line
from hyper_parallel.checkpoint import CheckpointMetadata

_SECONDS = 2.0
_FILES = 1000
_COLUMNS = 4096
_CHUNK_ROWS = 3
_CHUNK_BYTES = _CHUNK_ROWS * _COLUMNS * 4
_FILE_BYTES = 1 << 40
_CHECKSUM_STEP = 2654435761
_CHECKSUMS = 1 << 32


def metadata_lines(bench: Bench) -> Iterator[Line]:
    """Parsed and validated, from text in memory."""
    sizes = bench.sizes
    # As the library writes it.
    text = CheckpointMetadata.parse(_metadata(sizes)).to_bytes()
    seconds = []
    for _ in range(bench.effort.pairs):
        gc.collect()
        begin = time.perf_counter()
        metadata = CheckpointMetadata.parse(text)
        seconds.append(time.perf_counter() - begin)
        if len(metadata.files) != _FILES:
            raise AssertionError(f"the metadata has {len(metadata.files)} files, not {_FILES}")
        del metadata
    found = quartiles(seconds)
    yield Line(
        f"read metadata: {sizes.names * sizes.chunks_per_name} chunks, {sizes.names} names, {size_text(len(text))}",
        time_text(found.median),
        f"quartiles {time_text(found.lower)}, {time_text(found.upper)}",
        "",
        "",
        "",
        f"< {_SECONDS:g} s",
        "yes" if found.median < _SECONDS else "missed",
    )


def _metadata(sizes: Sizes) -> bytes:
    """Tensors cut into rows, one chunk in each of as many files, under keys and with checksums of their own."""
    files = [[f"data-{number:06}", _FILE_BYTES] for number in range(_FILES)]
    tensors = {
        f"model.layers.{number:06}.weight": _tensor(number, sizes.chunks_per_name) for number in range(sizes.names)
    }
    made = {
        "format": "hyper_parallel.checkpoint",
        "version": 1,
        "save_id": "0123456789abcdef",
        "files": files,
        "tensors": tensors,
        "values": {},
        "structure": None,
    }
    return json.dumps(made).encode()


def _tensor(number: int, chunks: int) -> dict[str, object]:
    begin = number * chunks * _CHUNK_BYTES
    return {
        "dtype": "F32",
        "shape": [chunks * _CHUNK_ROWS, _COLUMNS],
        "chunks": [
            [(number + i) % _FILES, begin + i * _CHUNK_BYTES, i * _CHUNK_ROWS, 0, _CHUNK_ROWS, _COLUMNS]
            for i in range(chunks)
        ],
        "tensor_keys": [f"{_name(number)}.__dcp_chunk_{i}" for i in range(chunks)],
        "crc32c": [(number * chunks + i) * _CHECKSUM_STEP % _CHECKSUMS for i in range(chunks)],
    }


def _name(number: int) -> str:
    return f"model.layers.{number:06}.weight"
