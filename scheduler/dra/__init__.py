"""Dynamic resource allocation: what DRA drivers and kube-scheduler do with cards that the ledger counts."""
