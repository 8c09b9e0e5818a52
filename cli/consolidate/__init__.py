"""Which pods to move to other nodes so that pending pods fit."""
