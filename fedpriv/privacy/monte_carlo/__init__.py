"""Privacy losses that are sampled, with a bound on δ that holds up to a stated probability."""
