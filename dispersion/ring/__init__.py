"""The linearised block on a ring or torus: J(q), its modes and bands, through depth, and where no J(q) exists."""
