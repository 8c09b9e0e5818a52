"""The configuration of Tranche that is installed in the cluster."""
