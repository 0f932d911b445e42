"""Tiny networks of every model type that a family knows: their class in transformers, and settings."""

TEXT = {"hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 40, "num_hidden_layers": 2, "vocab_size": 20}
SHORT = {"max_position_embeddings": 24}
ROTARY = {**TEXT, "num_attention_heads": 6, "num_key_value_heads": 2}
T5 = {"d_model": 24, "num_heads": 3, "d_kv": 6, "d_ff": 40, "num_layers": 2, "vocab_size": 20}
OPT = {"hidden_size": 24, "num_attention_heads": 3, "ffn_dim": 40, "num_hidden_layers": 2, "vocab_size": 20, **SHORT}
ESM = {"num_attention_heads": 2, "position_embedding_type": "rotary", "pad_token_id": 1, "mask_token_id": 2}
MODERN = {**TEXT, **SHORT, "num_attention_heads": 2, "num_hidden_layers": 3, "local_attention": 4, "pad_token_id": 0}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 40}
LLAMA3 |= {"rope_type": "llama3", "factor": 8.0}
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 40, "beta_fast": 4.0}
DISTIL = {"dim": 24, "n_heads": 3, "hidden_dim": 40, "n_layers": 2, "vocab_size": 20, **SHORT}
SMALLER = {**TEXT, **SHORT, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 12}
DEBERTA = {
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_buckets": 8,
    "max_relative_positions": 8,
}
DEBERTA |= {"norm_rel_ebd": "layer_norm", "num_hidden_layers": 1, "share_att_key": True, "position_biased_input": False}
BART = {"d_model": 24, "encoder_layers": 2, "encoder_attention_heads": 3, "encoder_ffn_dim": 40, **SHORT}
BART |= {"vocab_size": 20, "decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 30}
WHISPER = {**BART, "max_source_positions": 12, "max_target_positions": 12, "num_mel_bins": 6, "pad_token_id": 0}
IMAGE = {"image_size": 8, "patch_size": 2}
SWIN = {"image_size": 12, "patch_size": 2, "embed_dim": 24, "depths": [2, 2], "num_heads": [3, 4], "window_size": 3}
BEIT = {"image_size": 6, "patch_size": 2, "use_relative_position_bias": True}
SHARED = {"use_relative_position_bias": False, "use_shared_relative_position_bias": True, "use_mean_pooling": False}
PICTURE = {name: value for name, value in TEXT.items() if name != "vocab_size"}
YOLOS = {"image_size": [8, 12], "patch_size": 2, "num_detection_tokens": 5, "use_mid_position_embeddings": False}

TINY = {
    "albert": ("AlbertModel", {**TEXT, **SHORT, "embedding_size": 12, "num_hidden_groups": 2}),
    "bart": ("BartModel", {**BART, "scale_embedding": True}),
    "beit": ("BeitModel", {**PICTURE, **BEIT}),
    "beit of one bias": ("BeitModel", {**PICTURE, **BEIT, **SHARED}),
    "bert": ("BertModel", {**TEXT, **SHORT}),
    "camembert": ("CamembertModel", {**TEXT, **SHORT, "hidden_act": "gelu_new"}),
    "clip_text_model": ("CLIPTextModel", {**TEXT, **SHORT}),
    "clip_vision_model": ("CLIPVisionModel", {**PICTURE, **IMAGE}),
    "deit": ("DeiTModel", {**PICTURE, **IMAGE}),
    "deit without biases": ("DeiTModel", {**PICTURE, **IMAGE, "qkv_bias": False}),
    "distilbert": ("DistilBertModel", DISTIL),
    "distilbert with sines": ("DistilBertModel", {**DISTIL, "sinusoidal_pos_embds": True, "activation": "relu"}),
    "electra": ("ElectraModel", {**TEXT, **SHORT, "embedding_size": 12}),
    "electra as wide": ("ElectraModel", {**TEXT, **SHORT, "embedding_size": 24, "layer_norm_eps": 1e-5}),
    "bloom": ("BloomModel", {"hidden_size": 24, "n_head": 4, "n_layer": 2, "vocab_size": 20}),
    "bloom of 6 heads": ("BloomModel", {"hidden_size": 24, "n_head": 6, "n_layer": 2, "vocab_size": 20}),
    "gemma2": ("Gemma2Model", {**SMALLER, "num_key_value_heads": 1, "head_dim": 6, "sliding_window": 3}),
    "gpt_neox": ("GPTNeoXModel", {**SMALLER, "rotary_pct": 0.5}),
    "gptj": ("GPTJModel", {"n_embd": 8, "n_head": 2, "n_layer": 2, "rotary_dim": 2, "vocab_size": 20}),
    "gemma": ("GemmaModel", {**ROTARY, "head_dim": 6}),
    "esm": ("EsmModel", {**TEXT, **SHORT, **ESM, "token_dropout": True}),
    "esm with a first norm": ("EsmModel", {**TEXT, **SHORT, **ESM, "emb_layer_norm_before": True}),
    "deberta-v2": ("DebertaV2Model", {**SMALLER, **DEBERTA}),
    "dinov2": ("Dinov2Model", {**TEXT, **IMAGE, "mlp_ratio": 2}),
    "gpt2": ("GPT2Model", {"n_embd": 24, "n_head": 3, "n_layer": 2, "n_positions": 24, "vocab_size": 20}),
    "llama": ("LlamaModel", {**ROTARY, "rope_theta": 500.0}),
    "llama 3": ("LlamaModel", {**ROTARY, "rope_scaling": LLAMA3, "head_dim": 16}),
    "llama stretched": ("LlamaModel", {**ROTARY, "rope_scaling": {"rope_type": "linear", "factor": 3.0}}),
    "llama with YaRN": ("LlamaModel", {**ROTARY, "rope_scaling": YARN, "hidden_size": 36, "head_dim": 16}),
    "mistral": ("MistralModel", {**ROTARY, "rope_theta": 500.0}),
    "mistral with a short window": ("MistralModel", {**ROTARY, "sliding_window": 3}),
    "mistral without a window": ("MistralModel", {**ROTARY, "sliding_window": None}),
    "mpt": ("MptModel", {"d_model": 24, "n_heads": 6, "n_layers": 2, "vocab_size": 20, "max_seq_len": 24}),
    "opt": ("OPTModel", OPT),
    "opt post-LN": ("OPTModel", {**OPT, "do_layer_norm_before": False, "word_embed_proj_dim": 12}),
    "opt without biases": ("OPTModel", {**OPT, "enable_bias": False}),
    "modernbert": ("ModernBertModel", MODERN),
    "modernbert with biases": (
        "ModernBertModel",
        {**MODERN, "norm_bias": True, "attention_bias": True, "mlp_bias": True, "local_rope_theta": 50.0},
    ),
    "roformer": ("RoFormerModel", {**TEXT, **SHORT, "num_attention_heads": 2, "embedding_size": 12}),
    "mpnet": ("MPNetModel", {**TEXT, **SHORT}),
    "mt5": ("MT5EncoderModel", {**T5, "relative_attention_max_distance": 40}),
    "phi": ("PhiModel", SMALLER),
    "qwen3": ("Qwen3Model", {**SMALLER, "num_key_value_heads": 1, "head_dim": 6}),
    "qwen2": ("Qwen2Model", {**ROTARY, "rope_theta": 500.0}),
    "roberta": ("RobertaModel", {**TEXT, **SHORT, "layer_norm_eps": 1e-5}),
    "roberta with another padding": ("RobertaModel", {**TEXT, **SHORT, "pad_token_id": 5}),
    "xlm-roberta": ("XLMRobertaModel", {**TEXT, **SHORT, "type_vocab_size": 1}),
    "siglip_text_model": ("SiglipTextModel", {**TEXT, **SHORT}),
    "siglip_vision_model": ("SiglipVisionModel", {**PICTURE, **IMAGE}),
    "swin": ("SwinModel", SWIN),
    "t5": ("T5EncoderModel", T5),
    "t5 gated": ("T5Model", {**T5, "feed_forward_proj": "gated-gelu"}),
    "umt5": ("UMT5EncoderModel", T5),
    "vit": ("ViTModel", {**TEXT, **IMAGE}),
    "vit_mae": ("ViTMAEModel", {**PICTURE, **IMAGE, "mask_ratio": 0.5}),
    "whisper": ("WhisperModel", WHISPER),
    "yolos": ("YolosModel", {**PICTURE, **YOLOS}),
}
"""By the model type, and what is special about it, if anything."""

TOKENS = {"swin": 9, "beit": 10, "beit of one bias": 10}
"""Of those that run on a window; others run on any number."""


def tiny(kind, seed=0):
    """The tiny model of this type in eval mode, every parameter random."""
    import torch
    import transformers

    name, settings = TINY[kind]
    model_class = getattr(transformers, name)
    torch.manual_seed(seed)
    model = model_class(model_class.config_class(**settings))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:  # a table
                continue
            gain = name.endswith("weight") and parameter.ndim == 1
            parameter.copy_(0.2 * torch.randn(parameter.shape) + gain)
    return model.eval()
