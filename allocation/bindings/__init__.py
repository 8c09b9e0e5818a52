"""GPUBindings: which cards belong to an application of a user, and what its pods get of them."""
