"""Faults done to a real cluster under load, and a checker that trusts nothing but the API."""
