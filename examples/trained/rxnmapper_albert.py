"""The trained ALBERT of rxnmapper 0.4.3, one layer applied 12 times: what it amplifies, predicted and run.

pip install --no-deps rxnmapper==0.4.3
python examples/trained/rxnmapper_albert.py [FOLDER]
"""

import numpy as np
from common import inside, output_folder, picture, print_check

from models.families import load_network

MODEL = "models/transformers/albert_heads_8_uspto_all_1310k/pytorch_model.bin"
CARBON = 16
"""The token C."""

network = load_network(inside("rxnmapper", MODEL), "albert")
print(f"ALBERT of rxnmapper: d = {network.d}, {len(network.layers)} applications of one layer")
for note in network.notes:
    print(f"note: {note}")
print("around a row of carbon atoms, on a ring of 8 tokens:")
print_check(network, network.embedding.state(CARBON, 8), 8)
shares = network.position_shares(slice(1, 201))
print(f"translation-invariant share of the position logits, positions 1 … 200: best head {shares.max():.3f}, ", end="")
print(f"median {np.median(shares):.3f}")
for path in picture(network, CARBON, 32, "ALBERT of rxnmapper", output_folder(), "rxnmapper_albert"):
    print(f"wrote {path}")
