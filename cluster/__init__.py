"""The Kubernetes API as we use it: connection, verbs, list+watch caches, events, errors, a process's configuration."""
