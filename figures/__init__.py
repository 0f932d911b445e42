"""The figures of the paper: one module each, a shared style, and a report of the claims they test."""

NAMES = ("fig1", "fig2", "fig3", "fig5", "fig8", "fig9", "fig14")
"""The figures there are; each is the module of that name, loaded when it is asked for."""

NEEDS_TORCH = ("fig5", "fig8", "fig9")
"""Those that need PyTorch, the extra [torch]."""

__all__ = ["NAMES"]
