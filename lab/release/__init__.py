"""What people install `kubectl gpu` from: a wheel, and an archive with a manifest for krew."""
