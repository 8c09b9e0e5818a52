"""The ledger: which pod holds what of each card."""
