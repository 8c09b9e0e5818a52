"""`kubectl gpu report`: how many GPU-hours each namespace and queue has had."""
