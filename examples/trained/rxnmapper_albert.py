"""The trained ALBERT of rxnmapper 0.4.3, one layer applied 12 times: what it amplifies, predicted and run.

pip install --no-deps rxnmapper==0.4.3
python examples/trained/rxnmapper_albert.py [FOLDER]
"""

from common import inside, present

from models.families import load_network

MODEL = "models/transformers/albert_heads_8_uspto_all_1310k/pytorch_model.bin"
CARBON = 16
"""The token C."""

network = load_network(inside("rxnmapper", MODEL), "albert")
print(f"ALBERT of rxnmapper: d = {network.d}, {len(network.layers)} applications of one layer")
present(network, "ALBERT of rxnmapper", "rxnmapper_albert", CARBON, "a row of carbon atoms", tokens=8, positions=200)
