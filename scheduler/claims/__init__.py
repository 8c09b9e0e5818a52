"""GpuClaims: what they give to the pods that name them, and what their status says about that."""
