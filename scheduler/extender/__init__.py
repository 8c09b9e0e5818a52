"""The scheduler extender: the verbs that kube-scheduler calls."""
