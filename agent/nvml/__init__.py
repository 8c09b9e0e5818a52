"""Cards as NVML reports them."""
