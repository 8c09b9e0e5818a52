"""The container image of Tranche's processes, built from `Containerfile` without a container engine's daemon."""
