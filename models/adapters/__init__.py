"""Adapters: checkpoints of known families as Networks, whose layers are torch modules and Blocks."""

from models.adapters.encoder import from_module
from models.adapters.layer import Layer
from models.adapters.network import Embedding, Network

__all__ = ["Embedding", "Layer", "Network", "from_module"]
