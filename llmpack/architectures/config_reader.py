"""Reads Hugging Face's config.json under old and new spellings, and remembers which keys were read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmpack.errors import CheckpointError, UnsupportedArchitecture

# Spellings that transformers maps onto its standard names (attribute_map, and the renames of version 5).
ALIASES: Mapping[str, tuple[str, ...]] = {
    "hidden_size": ("n_embd",),
    "num_hidden_layers": ("n_layer",),
    "num_attention_heads": ("n_head",),
    "max_position_embeddings": ("n_positions",),
    "intermediate_size": ("n_inner",),
    "hidden_act": ("hidden_activation", "activation_function"),
    "rms_norm_eps": ("layer_norm_eps", "layer_norm_epsilon"),
}

# Keys that say nothing about the maths of inference, whatever their value.
BOOKKEEPING = frozenset(
    {
        # Names and versions
        *("architectures", "model_type", "transformers_version", "_name_or_path", "name_or_path", "auto_map"),
        *("tokenizer_class", "is_llama_config", "unsloth_fixed", "unsloth_version", "pretraining_tp", "n_ctx"),
        # Storage and execution
        *("torch_dtype", "dtype", "use_cache", "cache_implementation", "gradient_checkpointing", "torchscript"),
        *("use_bfloat16", "_attn_implementation", "chunk_size_feed_forward", "return_dict", "use_return_dict"),
        *("output_attentions", "output_hidden_states", "output_router_logits", "tie_word_embeddings"),
        # Training
        *("initializer_range", "initializer_factor", "attention_dropout", "attn_pdrop", "embd_pdrop", "resid_pdrop"),
        *("hidden_dropout", "classifier_dropout", "attention_dropout_prob", "hidden_dropout_prob", "pruned_heads"),
        # Special tokens and generation, which other files decide
        *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "unk_token_id", "decoder_start_token_id"),
        *("bad_words_ids", "max_length", "min_length", "do_sample", "temperature", "top_k", "top_p", "prefix"),
        # Other tasks and encoder-decoder models
        *("task_specific_params", "finetuning_task", "problem_type", "id2label", "label2id", "is_encoder_decoder"),
        *("is_decoder", "add_cross_attention", "tie_encoder_decoder", "summary_type", "summary_use_proj"),
        *("summary_activation", "summary_first_dropout", "summary_proj_to_labels"),
    }
)

# Keys that change the maths in some family, with the values that leave it alone. A row that does not read such a key
# refuses any other value: ignoring it would compile a different model.
NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "attention_bias": (None, False),
    "mlp_bias": (None, False),
    "lm_head_bias": (None, False),
    "attn_logit_softcapping": (None, 0, 0.0),
    "final_logit_softcapping": (None, 0, 0.0),
    "sliding_window": (None,),
    "use_sliding_window": (None, False),
    "layer_types": (None,),
    "rope_scaling": (None,),
    "rope_parameters": (None,),
    "rope_interleaved": (None, False),
    "partial_rotary_factor": (None, 1.0, 1),
    "rotary_pct": (None, 1.0, 1),
    "rotary_dim": (None,),
    "no_rope_layers": (None,),
    "alibi": (None, False),
    "use_bidirectional_attention": (None, False),
    "embedding_multiplier": (None, 1, 1.0),
    "residual_multiplier": (None, 1, 1.0),
    "attention_multiplier": (None,),
    "logits_scaling": (None, 1, 1.0),
    "logit_scale": (None, 1, 1.0),
    "query_pre_attn_scalar": (None,),
    "use_qk_norm": (None, False),
    "qk_layernorm": (None, False),
    "num_experts": (None, 0, 1),
    "num_local_experts": (None, 0, 1),
    "n_routed_experts": (None, 0),
    "parallel_attn": (None, False),
    "use_parallel_residual": (None, False),
    "scale_attn_weights": (None, True),
    "scale_attn_by_inverse_layer_idx": (None, False),
    "reorder_and_upcast_attn": (None, False, True),
    "quantization_config": (None,),
    "clip_qkv": (None,),
    "multi_query": (None, False),
}


class ConfigReader:
    """A config.json whose reads are counted.

    Args:
        raw: The parsed JSON object.
        defaults: Values that the family's transformers config class gives to absent keys.
    """

    def __init__(self, raw: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self.raw = raw
        self._defaults = defaults
        self._read: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the value under `name` or one of its other spellings, else the family's default, else `default`.

        An explicit null is an answer, not an absence: it gives `default`, never the family's default.
        """
        for spelling in (name, *ALIASES.get(name, ())):
            self._read.add(spelling)
            if spelling in self.raw:
                value = self.raw[spelling]
                return default if value is None else value
        return self._defaults.get(name, default)

    def integer(self, name: str, default: int | None = None) -> int:
        """Returns a positive int. Raises CheckpointError when it is absent or something else."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise CheckpointError(
                f"`{name}` is not usable", where="config.json", given=value, allowed="a positive integer"
            )
        return value

    def optional_integer(self, name: str) -> int | None:
        """Returns a positive int, or None for null. Raises CheckpointError for anything else."""
        return None if self.get(name) is None else self.integer(name)

    def number(self, name: str, default: float | None = None) -> float:
        """Returns a float. Raises CheckpointError when it is absent or not a number."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise CheckpointError(f"`{name}` is not usable", where="config.json", given=value, allowed="a number")
        return float(value)

    def flag(self, decision: bool | str) -> bool:
        """Returns the constant, or the boolean under the config key that decides."""
        return decision if isinstance(decision, bool) else bool(self.get(decision, False))

    def unread_keys(self, architecture: str) -> tuple[str, ...]:
        """Returns the keys nobody read.

        Raises:
            UnsupportedArchitecture: One of them changes the maths; all such keys are named.
        """
        unread = sorted(set(self.raw) - self._read - BOOKKEEPING)
        harmful = [key for key in unread if key in NEUTRAL and self.raw[key] not in NEUTRAL[key]]
        if harmful:
            raise UnsupportedArchitecture(
                f"`{architecture}` with " + ", ".join(f"{key}={self.raw[key]!r}" for key in harmful) + " has no row",
                where="config.json",
                allowed="; ".join(f"{key} in {list(NEUTRAL[key])}" for key in harmful),
                next_step="llmpack refuses settings that change the maths rather than ignore them.",
            )
        return tuple(unread)
