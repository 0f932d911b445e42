"""Adapters: checkpoints of known families as Networks, whose layers are torch modules and Blocks."""

from models.adapters.layer import Layer
from models.adapters.network import Embedding, Network
from models.adapters.reference import Reference
from models.adapters.registry import family
from models.adapters.settings import Settings
from models.adapters.weights import Weights

__all__ = ["Embedding", "Layer", "Network", "Reference", "Settings", "Weights", "family"]
