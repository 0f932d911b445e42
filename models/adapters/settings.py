"""The settings of a network: what its config.json says, each asked for by name, and none left over unasked."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dispersion.errors import ArgumentError, real_number, shown, whole_number

CONFIG = "config.json"
"""The file of settings in a folder of a network."""
MOST = 10_000
"""The largest number of layers or heads that a setting may say."""

_SIZES = """
hidden_size num_hidden_layers intermediate_size vocab_size max_position_embeddings type_vocab_size embedding_size
image_size patch_size num_channels n_embd n_layer n_positions n_inner d_model d_ff
"""
_BESIDE_THE_LAYERS = """
architectures model_type dtype torch_dtype transformers_version tokenizer_class name language
bos_token_id eos_token_id eos_token_ids pad_token_id sep_token_id cls_token_id unk_token_id mask_token_id
decoder_start_token_id
tie_word_embeddings is_encoder_decoder id2label label2id num_labels problem_type finetuning_task task_specific_params
pooler_output_size pooler_act pooler_hidden_act classifier_activation output_attentions output_hidden_states
return_dict use_return_dict use_cache torchscript use_bfloat16 chunk_size_feed_forward tf_legacy_loss
tie_encoder_decoder cross_attention_hidden_size prefix
"""
_OF_TRAINING = """
hidden_dropout_prob attention_probs_dropout_prob classifier_dropout classifier_dropout_prob attention_dropout dropout
dropout_rate activation_dropout resid_pdrop embd_pdrop attn_pdrop hidden_dropout embedding_dropout drop_path_rate
layerdrop initializer_range initializer_factor init_std initializer_cutoff_factor gradient_checkpointing
"""
_OF_GENERATION = """
bad_words_ids begin_suppress_tokens diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size
exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id length_penalty max_length min_length
no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_scores remove_invalid_values
repetition_penalty return_dict_in_generate suppress_tokens temperature top_k top_p typical_p output_past
"""
SIZES = frozenset(_SIZES.split())
"""Sizes that the weights themselves show."""
HARMLESS = frozenset((_SIZES + _BESIDE_THE_LAYERS + _OF_TRAINING + _OF_GENERATION).split())
"""Settings of any family that do not change the map of a layer, beside those that begin with an underscore."""
OFF: dict[str, Any] = {"is_decoder": False, "add_cross_attention": False, "pruned_heads": {}}
"""Settings of any family that do change it, and their value in a network whose family does not ask for them."""


def read_config(path: str | os.PathLike[str], config: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """The settings of the checkpoint `path`: the JSON file `config`, or config.json in or beside it; {} without."""
    file = beside(path) if config is None else Path(config)
    if config is None and not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ArgumentError("config", f"{str(file)!r} ({type(error).__name__})", "a JSON file of settings") from None
    if not isinstance(content, dict):
        raise ArgumentError("config", f"{str(file)!r} with a {type(content).__name__}", "a JSON object of settings")
    return content


def beside(path: str | os.PathLike[str]) -> Path:
    """The config.json in the folder `path`, or beside the checkpoint."""
    return Path(path) / CONFIG if Path(path).is_dir() else Path(path).with_name(CONFIG)


class Settings:
    """The settings of a network, each asked for by name.

    values : by name, as in the config of the reference implementation. A setting that is absent, or null, has the
    default of the reference if the config says its model_type, as those do that the reference writes; in a config of
    other origin nothing is assumed.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = dict(values)
        self.asked: set[str] = set()
        self.seen: dict[str, int] = {}
        """Those that the weights show."""
        self.handed: set[str] = set()
        """Those that another implementation has to know."""
        self.typed = isinstance(values.get("model_type"), str)

    def get(self, name: str, default: Any = None) -> Any:
        """The setting `name`, else the reference's `default`; without that, or a model_type, it has to be there."""
        value = self.find(name)
        if value is not None:
            return value
        if default is None or not self.typed:
            also = "" if default is None else f"; with a model_type it is {default}"
            accepted = f"a config.json beside the checkpoint, or config=FILE, that has it{also}"
            raise ArgumentError("config", f"no {name}", accepted)
        return default

    def find(self, name: str) -> Any:
        """The setting `name`, None if it is absent or null."""
        self.asked.add(name)
        return self.values.get(name)

    def whole(self, name: str, default: int | None = None) -> int:
        """The setting `name` as a whole number from 1 to MOST, `default` as in `get`."""
        value = whole_number(name, self.get(name, default), 1)
        if value > MOST:
            raise ArgumentError(name, value, f"at most {MOST:,}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """The setting `name` as a finite number ≥ 0, `default` as in `get`."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or value < 0:
            raise ArgumentError(name, shown(value), "a finite number ≥ 0")
        return real_number(name, value)

    def flag(self, name: str, default: bool | None = None) -> bool:
        """The setting `name` as true or false, `default` as in `get`."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise ArgumentError(name, shown(value), "true or false")
        return value

    def only(self, name: str, *allowed: Any) -> None:
        """Refuse the network if its setting `name` is there and none of those `allowed`, the first the default."""
        value = self.find(name)
        if value is not None and not any(type(value) is type(one) and value == one for one in allowed):
            accepted = " or ".join(map(str, allowed)) or "a network without it"
            raise ArgumentError("config", f"{name} = {shown(value)}", accepted)

    def match(self, name: str, shown_by_weights: int) -> int:
        """`shown_by_weights`; refuse the network if its setting `name` is there and says another number."""
        value, self.seen[name] = self.find(name), shown_by_weights
        if value is not None and (isinstance(value, bool) or value != shown_by_weights):
            raise ArgumentError("config", f"{name} = {shown(value)}", f"{shown_by_weights}, as the weights have it")
        return shown_by_weights

    def hand_on(self) -> None:
        """Ask for every setting but those of HARMLESS, for an implementation that knows them all."""
        self.only("quantization_config")
        self.only("auto_map")
        own = {name for name in self.values if name not in HARMLESS and not str(name).startswith("_")}
        self.handed, self.asked = own - self.asked, self.asked | own

    def finish(self, family: str, harmless: Collection[str] = ()) -> None:
        """Refuse a setting that nobody asked for, unless it is of HARMLESS or the `harmless` of the `family`."""
        for name, usual in OFF.items():
            if name not in self.asked:
                self.only(name, usual)
        for name, value in self.values.items():
            known = name in self.asked or name in HARMLESS or name in harmless or str(name).startswith("_")
            if not known and value is not None:
                got = f"{shown(name, str)} = {shown(value)}, which {family} does not know"
                raise ArgumentError("config", got, f"the settings of {family}; leave out what does not change its map")
