"""ε from below: what an attack on planted canaries shows of a mechanism."""
