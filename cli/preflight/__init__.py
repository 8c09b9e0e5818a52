"""`kubectl gpu preflight`: what to do before a cluster switches to Tranche."""
