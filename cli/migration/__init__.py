"""What a switch to Tranche would change in a cluster: a survey of its objects, judged without a write."""
