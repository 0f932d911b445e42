"""DistilBERT: a post-normalised encoder with absolute positions added to the input, learned or sinusoidal."""

from __future__ import annotations

from models.adapters.layer import activation_named
from models.adapters.named import layer_named, norm_named
from models.adapters.network import Embedding, Network
from models.adapters.reference import Reference
from models.adapters.registry import family
from models.adapters.settings import Settings
from models.adapters.weights import Weights

EPS = 1e-12
"""Of every norm: it is no setting."""
_NAMES = {
    "query": "attention.q_lin",
    "key": "attention.k_lin",
    "value": "attention.v_lin",
    "out": "attention.out_lin",
    "norm_1": "sa_layer_norm",
    "in": "ffn.lin1",
    "outward": "ffn.lin2",
    "norm_2": "output_layer_norm",
}


@family(
    "distilbert",
    "DistilBERT: post-LN, absolute positions at the input",
    route="ring",
    anchor=r"transformer\.layer\.0\.attention\.q_lin\.weight",
    within=r"transformer\.",
    model_types=("distilbert",),
    reference=Reference(r"transformer\.layer\.\d+"),
    harmless=("qa_dropout", "seq_classif_dropout", "sinusoidal_pos_embds", "tie_weights_"),
)
def distilbert(weights: Weights, settings: Settings) -> Network:
    """A DistilBERT encoder: n_heads, activation. Sinusoidal positions are in the checkpoint as learned ones are."""
    heads, act = settings.whole("n_heads", 12), activation_named(settings.get("activation", "gelu"))
    count = settings.match("n_layers", weights.count(r"transformer\.layer\.(\d+)\."))
    layers = tuple(
        layer_named(
            weights,
            f"transformer.layer.{number}.",
            _NAMES,
            heads=heads,
            eps=EPS,
            placement="post",
            activation=act,
        )
        for number in range(count)
    )
    d = settings.match("dim", layers[0].d)
    settings.match("hidden_dim", len(layers[0].weight_in))
    embedding = None
    if "embeddings.word_embeddings.weight" in weights:
        tokens = weights.take("embeddings.word_embeddings.weight", None, d)
        positions = weights.take("embeddings.position_embeddings.weight", None, d)
        settings.match("vocab_size", len(tokens))
        settings.match("max_position_embeddings", len(positions))
        embedding = Embedding(tokens, positions, norm=norm_named(weights, "embeddings.LayerNorm", d, EPS))
    return Network(weights.family, layers, embedding)
