"""Access to the cluster, with kubectl's configuration and flags."""
