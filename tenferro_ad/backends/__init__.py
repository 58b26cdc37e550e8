"""How operations run: providers of memory and kernels."""

from ._cpu import CPU, CpuDevice, Plan

__all__ = ["CPU", "CpuDevice", "Plan"]
