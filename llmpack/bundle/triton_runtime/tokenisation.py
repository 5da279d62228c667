"""The first model of target `triton-ensemble`: prompt -> input_ids, attention_mask.

["a b", "a b c d"] --> input_ids       [[0, 0, 5, 6], [5, 6, 7, 8]]
                       attention_mask  [[0, 0, 1, 1], [1, 1, 1, 1]]

Padding stands on the left, so that the last position of every row is that of its last token.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llmpack.api.prompts import encode_text
from llmpack.bundle.triton_runtime.failures import build_error, describe_failure, is_foreseen
from llmpack.bundle.triton_runtime.text_request import read_tensors, read_texts
from llmpack.errors import ContextLengthExceeded, LlmpackError, RequestError
from llmpack.runtime.tokenizer import Tokenizer

MAX_SEQ_LEN = "max_seq_len"
PAD_TOKEN_ID = "pad_token_id"

Ids = npt.NDArray[np.int64]


class Tokenisation:
    """Tokenises the prompts of each request together; a bad request fails alone.

    Args:
        pb_utils: Triton's module.
        tokenizer: The artifact's.
        max_seq_len: Tokens that the program takes.
        pad_token_id: What stands where no token is.
    """

    def __init__(self, pb_utils: Any, tokenizer: Tokenizer, max_seq_len: int, pad_token_id: int) -> None:
        self._pb_utils = pb_utils
        self._tokenizer = tokenizer
        self._max_seq_len = max_seq_len
        self._pad_token_id = pad_token_id

    @classmethod
    def load(cls, pb_utils: Any, args: Mapping[str, str]) -> Tokenisation:
        """The model of Triton's `initialize` arguments, with the tokenizer of its version directory.

        Raises:
            pb_utils.TritonModelException: The tokenizer or the config cannot be used.
        """
        parameters = json.loads(args["model_config"]).get("parameters", {})
        try:
            numbers = [int(parameters[name]["string_value"]) for name in (MAX_SEQ_LEN, PAD_TOKEN_ID)]
            return cls(pb_utils, Tokenizer.from_directory(Path(pb_utils.get_model_dir())), *numbers)
        except LlmpackError as error:
            raise pb_utils.TritonModelException(str(error)) from error
        except (KeyError, ValueError) as error:
            message = f"config.pbtxt needs the parameters {MAX_SEQ_LEN} and {PAD_TOKEN_ID}, whole numbers ({error})"
            raise pb_utils.TritonModelException(message) from error

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """One response per request, in order."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        pb_utils = self._pb_utils
        try:
            input_ids, attention_mask = self.encode(read_texts(read_tensors(request), "prompt"))
        except Exception as error:  # one bad request must not fail its neighbours
            if not is_foreseen(error):
                pb_utils.Logger.log_error("[llmpack] " + "".join(traceback.format_exception(error)))
            return pb_utils.InferenceResponse(output_tensors=[], error=build_error(pb_utils, describe_failure(error)))
        tensors = [pb_utils.Tensor("input_ids", input_ids), pb_utils.Tensor("attention_mask", attention_mask)]
        return pb_utils.InferenceResponse(output_tensors=tensors)

    def encode(self, prompts: Sequence[str]) -> tuple[Ids, Ids]:
        """Returns ids and mask, each [len(prompts), T], T the length of the longest prompt.

        Raises:
            RequestError: A prompt is empty or too long.
        """
        rows = [self._encode_one(prompt) for prompt in prompts]
        longest = max(map(len, rows))
        input_ids = np.full((len(rows), longest), self._pad_token_id, np.int64)
        attention_mask = np.zeros_like(input_ids)
        for index, row in enumerate(rows):
            input_ids[index, longest - len(row) :] = row
            attention_mask[index, longest - len(row) :] = 1
        return input_ids, attention_mask

    def _encode_one(self, prompt: str) -> list[int]:
        ids = encode_text(prompt, self._tokenizer)
        if not ids:
            raise RequestError("the prompt is empty", param="prompt", given=prompt)
        if len(ids) > self._max_seq_len:
            raise ContextLengthExceeded(
                "the prompt is longer than what was compiled",
                param="prompt", given=f"{len(ids)} tokens", allowed=f"at most {self._max_seq_len}",
            )  # fmt: skip
        return ids
