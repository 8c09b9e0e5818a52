"""The admission webhook: computes a JSON Patch for a review, without any API call, and serves it over TLS."""
