"""The method: which held records form a cluster, when, and what is published for them. No clock, no I/O."""
