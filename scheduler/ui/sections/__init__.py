"""The sections of the page: each keeps the rows of a table current."""
