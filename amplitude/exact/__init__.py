"""Exact states of the map, their stability, and the branches that they form."""
