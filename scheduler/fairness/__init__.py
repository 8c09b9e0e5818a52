"""Fair sharing of the cards between GpuQueues, and namespaces without one."""
