"""docs/networks.md prints what it says it prints, and says the criteria that are used."""

import re
import textwrap

import pytest

pytest.importorskip("torch")

import torch
from pages import Page

from models import meaning
from models.adapters.registry import ROUTES, families

PAGE, TRAINED = Page("docs/networks.md"), Page("docs/trained-networks.md")


def test_examples_and_links():
    pytest.importorskip("transformers", "4.57")
    PAGE.check()


def test_links_of_the_trained_networks():
    assert TRAINED.links
    assert all((TRAINED.folder / link).exists() for link in TRAINED.links)


SIZE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
MODELS = {
    "Bert": {**SIZE, "vocab_size": 20},
    "ViT": {**SIZE, "image_size": 16, "patch_size": 8},
    "GPT2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 20},
    "Llama": {**SIZE, "vocab_size": 20},
    "T5": {"d_model": 16, "num_layers": 2, "num_heads": 2, "d_kv": 8, "d_ff": 24, "vocab_size": 20},
}


@pytest.mark.parametrize("path", ["README.md", "docs/networks.md"])
@pytest.mark.parametrize("name", MODELS)
def test_three_lines_for_a_live_model(path, name, monkeypatch, capsys):
    """The lines as they stand there, a small model with random weights in place of a download."""
    transformers = pytest.importorskip("transformers", "4.57")
    lines = re.search(r"\n\n(    from transformers import AutoModel\n(?:    .*\n)+)", Page(path).text)[1]
    assert len(lines.splitlines()) == 3
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**MODELS[name])
    model = getattr(transformers, f"{name}Model")(config)
    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", lambda _: model)
    exec(textwrap.dedent(lines), {})
    printed = capsys.readouterr().out
    assert "largest growth is" in printed
    assert printed.startswith("what grows most") == (name in ("GPT2", "Llama", "T5"))  # on a line


def test_the_criteria_are_those_of_the_code():
    assert meaning.EVEN == meaning.COLLAPSE == 0.1
    assert (meaning.TURNS, meaning.NEAR) == (0.01, 0.5)


def test_your_own_model_takes_ten_lines():
    own = next(source for source, _ in PAGE.examples if "your own layer stands here" in source)
    lines = [line for line in own.splitlines() if line and not line.startswith(("import", "from"))]
    assert len(lines) <= 10


def test_every_family_is_described():
    for one in families().values():
        kinds = ", ".join(f"`{kind}`" for kind in one.model_types) or "–"
        assert f"| `{one.name}` | {kinds} | {one.what} | {ROUTES[one.route]} |" in PAGE.text.splitlines()
    assert set(re.findall(r"^\| `(\w+)` \| [`–]", PAGE.text, re.MULTILINE)) == set(families())
