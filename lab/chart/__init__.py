"""The Helm chart: its templates are the manifests of kustomize with values in place of some passages."""
