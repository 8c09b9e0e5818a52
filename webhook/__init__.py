"""Admission: a review in, a JSON Patch out; and the TLS server around it. No API call is made to answer a review."""
