"""Whether the parts of an installation work now: what a decision that is only computed here says nothing about."""
