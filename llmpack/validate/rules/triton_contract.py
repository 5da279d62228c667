"""The tensors of Triton's vLLM backend, release by release.

Source: triton-inference-server/vllm_backend, `docs/additional_outputs.md`, README and `model.py` of the branches r24.01
to r26.01.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ContractTensor:
    """A tensor of the contract, and the container release (`yy.mm`) that brought it."""

    name: str
    side: Literal["input", "output"]
    data_type: str
    since: str


FIRST_RELEASE = "24.01"
VLLM_BACKEND = (
    ContractTensor("text_input", "input", "TYPE_STRING", FIRST_RELEASE),
    ContractTensor("stream", "input", "TYPE_BOOL", FIRST_RELEASE),
    ContractTensor("sampling_parameters", "input", "TYPE_STRING", FIRST_RELEASE),
    ContractTensor("exclude_input_in_output", "input", "TYPE_BOOL", "24.03"),
    ContractTensor("image", "input", "TYPE_STRING", "24.12"),
    ContractTensor("return_finish_reason", "input", "TYPE_BOOL", "24.12"),
    ContractTensor("return_cumulative_logprob", "input", "TYPE_BOOL", "24.12"),
    ContractTensor("return_num_output_tokens", "input", "TYPE_BOOL", "24.12"),
    ContractTensor("return_logprobs", "input", "TYPE_BOOL", "25.01"),
    ContractTensor("return_num_input_tokens", "input", "TYPE_BOOL", "25.01"),
    ContractTensor("embedding_request", "input", "TYPE_STRING", "25.12"),
    ContractTensor("text_output", "output", "TYPE_STRING", FIRST_RELEASE),
    ContractTensor("finish_reason", "output", "TYPE_STRING", "24.12"),
    ContractTensor("cumulative_logprob", "output", "TYPE_FP32", "24.12"),
    ContractTensor("num_output_tokens", "output", "TYPE_UINT32", "24.12"),
    ContractTensor("logprobs", "output", "TYPE_STRING", "25.01"),
    ContractTensor("num_input_tokens", "output", "TYPE_UINT32", "25.01"),
)


def release_of_image(image: str | None) -> str | None:
    """The release in the tag of a Triton image (`24.01` of `.../tritonserver:24.01-vllm-python-py3`), or None."""
    if image is None or "tritonserver" not in image:
        return None
    tag = image.rpartition(":")[2]
    year, _, rest = tag.partition(".")
    month = rest[:2]
    return f"{year}.{month}" if year.isdecimal() and month.isdecimal() else None
