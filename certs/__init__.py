"""Certificates: the authority, the leaves it issues, their rotation and the caBundle that follows it."""
