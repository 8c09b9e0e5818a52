"""Access to the Kubernetes API, and what all processes share: configuration, logs, metrics, election, listeners."""
