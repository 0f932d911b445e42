"""The linearised block on a chain with ends: bulk, boundary modes, stability, pseudospectra (App. A.7)."""
