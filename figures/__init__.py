"""The figures of the paper: one module each, a shared style, and a report of the claims they test."""

NAMES = ("fig2", "fig3", "fig14")
"""The figures there are; each is the module of that name, loaded when it is asked for."""

__all__ = ["NAMES"]
