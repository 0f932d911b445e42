"""Engines: maps applied to many states, compiled."""
