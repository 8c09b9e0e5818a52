"""GPUBindings in the scheduler: which cards are bound to the application of each pod, and which pods have them."""
