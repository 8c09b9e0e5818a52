"""The Leases of cards: which pod has which card, as one atomic lock for all schedulers."""
