"""Networks of two halves: each is read alone, in memory or from the folder of the whole, and nothing else is."""

import copy
import importlib.util

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("transformers") is None:
    pytest.skip("needs the reference implementations: transformers < 5", allow_module_level=True)

import transformers  # noqa: E402
from families import BART, IMAGE, PICTURE, SHORT, TEXT, WHISPER, YOLOS  # noqa: E402

import tokenwaves  # noqa: E402
from dispersion import ArgumentError  # noqa: E402
from models.check import check  # noqa: E402
from models.families import from_module, load_network, network_from  # noqa: E402

WHOLES = {"clip": "CLIP", "siglip": "Siglip"}
EQUAL = {"decoder_layers": 2, "decoder_attention_heads": 3, "decoder_ffn_dim": 40}
DECODERS = {"Bart": {**BART, **EQUAL}, "Whisper": {**WHISPER, **EQUAL}}


def whole(kind):
    """One with text and vision of the same size, every weight random."""
    torch.manual_seed(0)
    parts = {"text_config": {**TEXT, **SHORT}, "vision_config": {**PICTURE, **IMAGE}}
    config = getattr(transformers, f"{WHOLES[kind]}Config")(**parts)
    model = getattr(transformers, f"{WHOLES[kind]}Model")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return model.eval()


def one_line(error):
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("kind", WHOLES)
def test_a_whole_names_its_halves(kind, tmp_path):
    model = whole(kind)
    model.save_pretrained(tmp_path)
    for asked in (lambda: from_module(model), lambda: check(model), lambda: load_network(tmp_path)):
        with pytest.raises(ArgumentError) as error:
            asked()
        told = one_line(error)
        assert f"model_type = '{kind}'" in told
        assert f"{kind}_text or {kind}_vision" in told
        assert "text_model or vision_model" in told
        assert "bert" not in told  # not all that is known


@pytest.mark.parametrize("kind", WHOLES)
@pytest.mark.parametrize("part", ["text", "vision"])
def test_a_half_from_the_folder_of_the_whole_is_that_in_memory(kind, part, tmp_path):
    model = whole(kind)
    model.save_pretrained(tmp_path)
    read = load_network(tmp_path, f"{kind}_{part}")
    alone = from_module(getattr(model, f"{part}_model"))
    other = from_module(getattr(model, "vision_model" if part == "text" else "text_model"))
    assert read.comparison.error < 1e-10
    x = torch.randn(6, read.d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.equal(read.forward(x), alone.forward(x))
    assert not torch.allclose(read.forward(x), other.forward(x), rtol=1e-3)


def test_on_the_command_line(capsys, tmp_path):
    whole("clip").save_pretrained(tmp_path)
    capsys.readouterr()
    assert tokenwaves.main(["check", str(tmp_path), "--family", "clip_vision", "--tokens", "5"]) == 0
    assert "confirmed against the network" in capsys.readouterr().out
    for options, told in (([], "clip_text or clip_vision"), (["--family", "siglip_text"], "siglip_text_model")):
        assert tokenwaves.main(["check", str(tmp_path), *options]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert told in err


def test_a_whole_without_settings_of_a_half():
    model = whole("clip")
    with pytest.raises(ArgumentError, match="text_config = None"):
        network_from(model.state_dict(), "clip_text", {"model_type": "clip"})
    settings = model.config.to_dict()
    settings["text_config"]["novel"] = 3
    with pytest.raises(ArgumentError, match="novel = 3, which clip_text does not know"):
        network_from(model.state_dict(), "clip_text", settings)


@pytest.mark.parametrize("kind", DECODERS)
def test_a_decoder_is_no_encoder(kind):
    """Even of as many layers, heads and features, in memory and as a state dict, alone and within a language model."""
    model = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**DECODERS[kind])).eval()
    tensors, settings = model.decoder.state_dict(), model.config.to_dict()
    prefixed = {f"decoder.{name}": tensor for name, tensor in tensors.items()}
    language = getattr(transformers, f"{kind}ForCausalLM")(copy.deepcopy(model.config)).eval()
    asked = (
        lambda: from_module(model.decoder),
        lambda: from_module(language),
        lambda: network_from(tensors, None, settings),
        lambda: network_from(prefixed, None, settings),
    )
    for each in asked:
        with pytest.raises(ArgumentError) as error:
            each()
        assert "layers.0.encoder_attn" in one_line(error)
    stripped = {name: tensor for name, tensor in tensors.items() if "encoder_attn" not in name}
    with pytest.raises(ArgumentError) as error:
        network_from(stripped, None, settings)
    one_line(error)
    assert from_module(model.encoder).comparison.error < 1e-10


def test_a_yolos_with_positions_in_the_middle():
    config = transformers.YolosConfig(**{**PICTURE, **YOLOS, "use_mid_position_embeddings": True})
    with pytest.raises(ArgumentError, match="use_mid_position_embeddings = True"):
        from_module(transformers.YolosModel(config).eval())
