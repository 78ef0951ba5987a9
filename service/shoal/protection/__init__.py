"""What clusters must satisfy besides k: l-diversity, t-closeness, shares, and the quota of a subject's records."""
