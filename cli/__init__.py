"""`kubectl gpu`: what the cluster's cards hold and what a pod was given, for people."""
