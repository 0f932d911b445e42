"""Arms of studies of priors: a prior, and how the network that has it is trained."""

from __future__ import annotations

from dataclasses import dataclass, field

from dispersion.errors import choice, instance
from training.patterns import KINDS
from training.priors import NoPrior, Prior

DECAYS = ("everywhere", "nowhere", "elsewhere", "beyond")
"""Where weights decay: in all that trains, in nothing, in all but the prior, or in all but the prior and TOKENS."""

TOKENS = ("embedding", "positions")
"""Parts of an encoder that queries and keys are made of, and without which a prior in them says nothing."""

OPTIMISERS = ("adam", "adamw")
"""Adam with weight decay coupled to the gradient, or decoupled from it."""

MASKS = ("mask", "kernel")
"""Parts of an encoder that train only in an arm whose prior is there."""


@dataclass(frozen=True)
class PriorArm:
    """A prior and how it is trained.

    Parameters
    ----------
    prior : Prior
        In the mask, the kernel, or queries and keys; none by default.
    pattern : str
        What the pattern is to the task: 'correct', 'wrong', 'shifted' or 'permuted'.
    decay : str
        Where weights decay: 'everywhere', 'nowhere', 'elsewhere' than in the prior, or 'beyond' the prior, the
        embedding and the positions.
    optimiser : str
        'adam', whose decay is coupled to the gradient, or 'adamw'.
    """

    prior: Prior = field(default_factory=NoPrior)
    pattern: str = "correct"
    decay: str = "everywhere"
    optimiser: str = "adam"

    def __post_init__(self) -> None:
        instance("prior", self.prior, Prior)
        choice("pattern", self.pattern, KINDS)
        choice("decay", self.decay, DECAYS)
        choice("optimiser", self.optimiser, OPTIMISERS)

    @property
    def name(self) -> str:
        """As in tables: what differs from the defaults is named."""
        parts = [self.prior.name]
        if self.pattern != "correct":
            parts.append(self.pattern)
        if self.decay != "everywhere":
            parts.append(f"decay {self.decay}")
        if self.optimiser != "adam":
            parts.append(self.optimiser)
        return ", ".join(parts)

    @property
    def frozen(self) -> tuple[str, ...]:
        """Fields of the encoder that are not trained."""
        held = [part for part in MASKS if part not in self.prior.parts]
        return (*held, *(self.prior.parts if self.prior.frozen else ()))

    def decays(self, part: str) -> bool:
        """Whether a field of the encoder decays.

        Parameters
        ----------
        part : str
            Its name.
        """
        if self.decay == "nowhere" or part in self.frozen:
            return False
        spared = {"everywhere": (), "elsewhere": self.prior.parts, "beyond": (*self.prior.parts, *TOKENS)}
        return part not in spared[self.decay]
