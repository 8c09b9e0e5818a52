"""The state of the cluster as the API server shows it: nodes, cards, pods and quotas."""
