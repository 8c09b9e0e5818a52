"""Wire formats: the annotations and environment variables that carry an allocation."""
