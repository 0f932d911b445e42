"""Frequencies of rotary encodings are those of transformers, for any rope_type that has them."""

import importlib.util

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dispersion import ArgumentError  # noqa: E402
from models.adapters import Settings  # noqa: E402
from models.adapters.angles import angles, theta_named  # noqa: E402
from models.adapters.double import lifted  # noqa: E402

LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 131072}
SCALINGS = [
    {},
    {"rope_type": "linear", "factor": 4.0},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
    {"rope_type": "yarn", "factor": 40.0, "beta_fast": 20, "beta_slow": 2, "mscale": 1.0, "mscale_all_dim": 0.7},
    {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.3, "truncate": False},
]


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs transformers < 5")
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("theta", [10000.0, 500000.0])
@pytest.mark.parametrize("inside", [True, False])
def test_frequencies_are_those_of_transformers(scaling, theta, inside):
    import transformers
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    given = {"rope_parameters": {"rope_theta": theta, **scaling}} if inside else {"rope_theta": theta}
    given |= {} if inside or not scaling else {"rope_scaling": scaling}
    found = angles(Settings(LLAMA | given), 128)
    config = transformers.LlamaConfig(**theta_named(LLAMA | given))
    with lifted():
        expected, factor = ROPE_INIT_FUNCTIONS[scaling.get("rope_type", "default")](config, "cpu")
    np.testing.assert_allclose(found.frequencies, expected.numpy(), rtol=1e-14)
    assert found.factor == pytest.approx(factor, rel=1e-15)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type = 'dynamic'"),
        ({"rope_scaling": {"type": "longrope"}}, "rope_type = 'longrope'"),
        ({"rope_scaling": {"rope_type": "linear", "type": "yarn", "factor": 2.0}}, "type = 'yarn'"),
        ({"rope_scaling": {"rope_type": "linear"}}, "no factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "factor: got 0"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0, "mscale": 1.0}}, "mscale = 1.0"),
        ({"rope_scaling": {}, "rope_parameters": {"rope_theta": 5.0}}, "beside rope_parameters"),
        ({"rope_scaling": [2.0]}, "a JSON object"),
        ({"rope_scaling": {**SCALINGS[2], "low_freq_factor": 4.0}}, "low_freq_factor = 4.0"),
        ({"rope_theta": -1.0}, "rope_theta: got -1.0"),
        ({"rope_theta": 2.0, "rope_parameters": {"rope_theta": 3.0}}, "rope_theta = 2.0"),
    ],
)
def test_what_is_not_known_is_refused(settings, message):
    with pytest.raises(ArgumentError, match=message) as refused:
        angles(Settings(LLAMA | settings), 128)
    assert "\n" not in str(refused.value)
