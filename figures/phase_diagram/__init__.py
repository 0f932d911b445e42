"""Phase diagrams: a specification, its simulated map with theory over it, and the drawing."""
