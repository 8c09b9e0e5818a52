"""Fair sharing between queues: requirements, dominant shares, entitlements."""
