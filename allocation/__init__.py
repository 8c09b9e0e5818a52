"""The common library: devices, requests, the ledger, fit, score, placement, wire formats, environment.

Pure: no I/O, no clock, no Kubernetes client, no logging. Everything that two processes must agree on is decided here.
"""
