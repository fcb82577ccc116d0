"""Which kernels an op becomes, in which forms they read values, and which ops go together."""

from golem_vulkan.lowering.table import table as table
