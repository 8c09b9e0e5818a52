"""The lab: a real Kubernetes on one machine, without Docker, in one command."""
