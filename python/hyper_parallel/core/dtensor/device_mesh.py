"""``DeviceMesh`` under the path of the specification."""

from __future__ import annotations

from hyper_parallel.device_mesh import DeviceMesh, init_device_mesh

__all__ = ["DeviceMesh", "init_device_mesh"]
