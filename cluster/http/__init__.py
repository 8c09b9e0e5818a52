"""HTTP and HTTPS listeners, and metrics for Prometheus."""
