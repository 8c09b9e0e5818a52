"""Cards that a file declares, for nodes without NVML."""
