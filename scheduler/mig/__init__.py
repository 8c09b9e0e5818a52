"""Requests for MIG instances, which agents create for waiting pods."""
