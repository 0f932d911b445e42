"""Adapters: checkpoints of known families as Networks, whose layers are torch modules and Blocks."""

from models.adapters.encoder import from_module
from models.adapters.layer import Layer, LayerModule
from models.adapters.network import Embedding, Network

__all__ = ["Embedding", "Layer", "LayerModule", "Network", "from_module"]
