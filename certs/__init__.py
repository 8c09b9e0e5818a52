"""Certificates: the authority (CA), the leaf certificates it issues, their rotation, and the caBundle."""
