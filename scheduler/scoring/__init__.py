"""Scores of nodes by what pods prefer and what administrators weigh."""
