"""transformers as the oracle: logits of whole sequences, in float32, without a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

from llmpack.architectures.arch_spec import ArchSpec
from llmpack.checkpoint.checkpoint import Checkpoint

Logits = npt.NDArray[np.float32]


class TransformersOracle:
    """The checkpoint as transformers runs it.

    Args:
        checkpoint: Loaded with `from_pretrained` where it is a directory; a .gguf's tensors are handed over one by one.
        row: Names the class.
    """

    def __init__(self, checkpoint: Checkpoint, row: ArchSpec) -> None:
        self.reference = f"transformers {transformers.__version__} {row.transformers_class} float32"
        transformers.utils.logging.disable_progress_bar()
        self._model = _load(checkpoint, row).eval()

    def logits(self, token_ids: Sequence[int], positions: Sequence[int], pad_to: int = 0) -> Logits:
        """Returns [len(positions), V] logits.

        Args:
            token_ids: The sequence.
            positions: Where logits are wanted.
            pad_to: Length to which the sequence is extended with token 0. Attention is causal, so this changes nothing
                but the rope table that a longrope model picks for its length.
        """
        ids = list(token_ids) + [0] * (pad_to - len(token_ids))
        with torch.inference_mode():
            output = self._model(
                input_ids=torch.tensor([ids]), use_cache=False, logits_to_keep=torch.tensor(list(positions))
            )
        return np.ascontiguousarray(output.logits[0].float().numpy())


def _load(checkpoint: Checkpoint, row: ArchSpec) -> Any:
    if checkpoint.directory is not None:
        return AutoModelForCausalLM.from_pretrained(
            checkpoint.directory, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
        )
    config = AutoConfig.for_model(**checkpoint.config)
    with torch.device("meta"):
        model = getattr(transformers, row.transformers_class)._from_config(config, dtype=torch.float32)
    return _hand_over(model, checkpoint)


def _hand_over(model: Any, checkpoint: Checkpoint) -> Any:
    """Assigns the checkpoint's tensors to a model without storage; what is not a weight is computed again."""
    source = checkpoint.weights
    state = {name: torch.from_numpy(np.array(source.read(name), dtype=np.float32)) for name in source.names()}
    missing, unexpected = model.load_state_dict(state, strict=False, assign=True)
    assert not unexpected, f"transformers does not know {unexpected}"
    model.tie_weights()
    left = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    assert not left, f"transformers misses {left or missing}"
    for module in model.modules():
        if hasattr(module, "inv_freq"):  # A buffer that no checkpoint stores.
            module.__init__(model.config)
    return model
