"""Training experiments: blocks engineered to a wanted J(q), controlled tasks, arms and their study.

The names are loaded when first used. Those of networks need PyTorch, the extra [torch]; `import training` works
without it.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from training.arithmetic import Addition, Multiplication
    from training.arithmetic_experiment import ArithmeticExperiment
    from training.arms import Arm, Engineered, Given, RandomMode, Sinusoidal, Standard
    from training.batch import Batch
    from training.boolean import Cyclic3, Majority3, ThreeSym, TwoParity
    from training.boolean_experiment import BooleanExperiment
    from training.codes import Code, circle_code, value_code
    from training.cube import minimum_degree
    from training.encoder import Encoder
    from training.encoders import Encoders
    from training.engineering import engineer
    from training.fitting import Curves, Snapshot, accuracy, adamw, cross_entropy, fit
    from training.frame import Frame
    from training.looped import Looped
    from training.looped_experiment import LoopedExperiment
    from training.patterns import Pattern, pattern_of
    from training.prior_arm import PriorArm
    from training.priors import KernelPrior, MaskPrior, NeutralMask, NoPrior, StructuredOpt, StructuredSVD
    from training.statistics import at_steps, early_auc, over_seeds, paired, windows, z_scores
    from training.streams import stream
    from training.study import Study
    from training.survival import drift, on_the_curve, survival
    from training.target import Target
    from training.task import Task
    from training.tasks import CoherentShift, FeatureRotation, SpectralInfilling
    from training.watching import FirstMode, Watched, watch

_HOME = {
    "Task": "task",
    "Arm": "arms",
    "Batch": "batch",
    "Code": "codes",
    "CoherentShift": "tasks",
    "Engineered": "arms",
    "FeatureRotation": "tasks",
    "FirstMode": "watching",
    "Frame": "frame",
    "Given": "arms",
    "LoopedExperiment": "looped_experiment",
    "Pattern": "patterns",
    "KernelPrior": "priors",
    "MaskPrior": "priors",
    "NeutralMask": "priors",
    "NoPrior": "priors",
    "StructuredOpt": "priors",
    "StructuredSVD": "priors",
    "drift": "survival",
    "on_the_curve": "survival",
    "survival": "survival",
    "RandomMode": "arms",
    "Sinusoidal": "arms",
    "SpectralInfilling": "tasks",
    "Standard": "arms",
    "Study": "study",
    "Target": "target",
    "at_steps": "statistics",
    "circle_code": "codes",
    "early_auc": "statistics",
    "engineer": "engineering",
    "over_seeds": "statistics",
    "paired": "statistics",
    "pattern_of": "patterns",
    "stream": "streams",
    "value_code": "codes",
    "Watched": "watching",
    "watch": "watching",
    "windows": "statistics",
    "z_scores": "statistics",
    "Cyclic3": "boolean",
    "Majority3": "boolean",
    "ThreeSym": "boolean",
    "TwoParity": "boolean",
    "minimum_degree": "cube",
    "Encoder": "encoder",
    "BooleanExperiment": "boolean_experiment",
    "PriorArm": "prior_arm",
    "Addition": "arithmetic",
    "Multiplication": "arithmetic",
    "ArithmeticExperiment": "arithmetic_experiment",
}
"""The module of each name that needs no PyTorch."""

_NETWORKS: dict[str, str] = {
    "Curves": "fitting",
    "Looped": "looped",
    "Snapshot": "fitting",
    "accuracy": "fitting",
    "adamw": "fitting",
    "cross_entropy": "fitting",
    "fit": "fitting",
    "Encoders": "encoders",
}
"""The module of each name that does."""

INSTALLED = find_spec("torch") is not None
"""Whether PyTorch is installed; without it only what needs none is exported."""

__all__ = [
    "Addition",
    "ArithmeticExperiment",
    "Arm",
    "Batch",
    "BooleanExperiment",
    "Code",
    "CoherentShift",
    "Curves",
    "Cyclic3",
    "Encoder",
    "Encoders",
    "Engineered",
    "FeatureRotation",
    "FirstMode",
    "Frame",
    "Given",
    "KernelPrior",
    "Looped",
    "LoopedExperiment",
    "Majority3",
    "MaskPrior",
    "Multiplication",
    "NeutralMask",
    "NoPrior",
    "Pattern",
    "PriorArm",
    "RandomMode",
    "Sinusoidal",
    "Snapshot",
    "SpectralInfilling",
    "Standard",
    "StructuredOpt",
    "StructuredSVD",
    "Study",
    "Target",
    "Task",
    "ThreeSym",
    "TwoParity",
    "Watched",
    "accuracy",
    "adamw",
    "at_steps",
    "circle_code",
    "cross_entropy",
    "drift",
    "early_auc",
    "engineer",
    "fit",
    "minimum_degree",
    "on_the_curve",
    "over_seeds",
    "paired",
    "pattern_of",
    "stream",
    "survival",
    "value_code",
    "watch",
    "windows",
    "z_scores",
]
if not INSTALLED:
    __all__[:] = [name for name in __all__ if name in _HOME]


def __getattr__(name: str) -> Any:
    if name in _NETWORKS and not INSTALLED:
        raise ImportError(f"{name} needs PyTorch: pip install 'tokenwaves[torch]'")
    home = _HOME.get(name) or _NETWORKS.get(name)
    if home is None:
        raise AttributeError(f"module 'training' has no attribute {name!r}")
    return getattr(import_module(f"training.{home}"), name)
