"""Fault injection into a real cluster under load, and a checker that trusts only the API."""
