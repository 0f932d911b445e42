"""The figures of the paper, and one of our own: a module each, a shared style, and a report of the claims they test."""

NAMES = ("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8", "fig9", "fig14", "masks")
"""The figures there are; each is the module of that name, loaded when it is asked for."""

NETWORKS = ("fig4", "fig5", "fig6", "fig7", "fig8", "fig9", "masks")
"""Those about networks: made without being named only where PyTorch is installed."""

NEEDS_TORCH = ("fig9",)
"""Those that run a network, and need PyTorch for it."""

__all__ = ["NAMES"]
