"""The configs of the two tutorials, as printed but for the path of the artifact."""

from __future__ import annotations

from pathlib import Path

MODEL_JSON = """\
{
    "model": "meta-llama/Llama-2-7b-chat-hf",
    "device": "rbln",
    "max_num_seqs": 4,
    "compiled_model_dir": "@ARTIFACT@",
    "max_num_batched_tokens": 4096,
    "max_model_len": 4096,
    "block_size": 4096
}
"""
COMMAND = """\
python -m vllm.entrypoints.openai.api_server \\
  --model meta-llama/Llama-2-7b-chat-hf \\
  --device rbln \\
  --max-num-seqs 4 \\
  --compiled-model-dir @ARTIFACT@ \\
  --max-num-batched-tokens 4096 \\
  --max-model-len 4096 \\
  --block-size 4096
"""
PYTHON = """\
from vllm import AsyncEngineArgs, AsyncLLMEngine

model_id = "meta-llama/Llama-2-7b-chat-hf"
max_seq_len = 4096
batch_size = 4

engine_args = AsyncEngineArgs(
  model=model_id,
  device="rbln",
  max_num_seqs=batch_size,
  max_num_batched_tokens=max_seq_len,
  max_model_len=max_seq_len,
  block_size=max_seq_len,
  compiled_model_dir="@ARTIFACT@",
)
engine = AsyncLLMEngine.from_engine_args(engine_args)
"""
VLLM_CONFIG = 'backend: "vllm"\ninstance_group [\n  {\n    count: 1\n    kind: KIND_MODEL\n  }\n]\n'

LLAMAV2_CONFIG = """\
name: "llamav2"
backend: "python"
input [
  {
    name: "prompt"
    data_type: TYPE_STRING
    dims: [1]
  }
]
output [
  {
    name: "generated_text"
    data_type: TYPE_STRING
    dims: [1]
  }
]
instance_group [
  {
    kind: KIND_GPU
  }
]
"""
LLAMAV2_MODEL_PY = """\
import huggingface_hub
import numpy as np
import triton_python_backend_utils as pb_utils
from transformers import AutoTokenizer

huggingface_hub.login(token="") ## Add your HF credentials

class TritonPythonModel:
    def initialize(self, args):
        self.tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-2-13b-chat-hf")

    def execute(self, requests):
        responses = []
        for request in requests:
            inputs = pb_utils.get_input_tensor_by_name(request, "prompt")
            output = [str(inputs)]
            responses.append(pb_utils.InferenceResponse(
            output_tensors=[
                pb_utils.Tensor(
                    "generated_text",
                    np.array([[o.encode() for o in output]]),
                    )
            ]
            ))
        return responses

    def finalize(self, args):
        self.generator = None
"""
# The site put U+00A0 where these spaces are.
BATCHING_CONFIG = """\
name: "llamav2"
backend: "python"
max_batch_size: 8

input [
  {
@   name: "prompt"
    data_type: TYPE_STRING @
    dims: [-1]
  }
]
output [
  {
    name: "generated_text"
    data_type: TYPE_STRING
    dims: [-1]
  }
]
dynamic_batching {
  preferred_batch_size: [2, 4, 8]
  max_queue_delay_microseconds: 300
}
""".replace("@", "\u00a0")
ENSEMBLE_CONFIG = """\
name: "ensemble_model"
max_batch_size: 0
platform: "ensemble"

input [
{
    name: "prompt"
    data_type: TYPE_STRING
    dims: [ -1 ]
}
]
output [
{
    name: "output_0"
    data_type: TYPE_FP32
    dims: [-1, 2]
}
]

ensemble_scheduling {
    step [
        {
            model_name: "tokenizer"
            model_version: -1
            input_map {
            key: "prompt"
            value: "prompt"
        }
        output_map [
        {
            key: "input_ids"
            value: "input_ids"
        },
        {
            key: "attention_mask"
            value: "attention_mask"
        }
        ]
        },
        {
            model_name: "model"
            model_version: -1
        input_map [
            {
                key: "input_ids"
                value: "input_ids"
            },
            {
                key: "attention_mask"
                value: "attention_mask"
            }
        ]
        output_map {
                key: "output_0"
                value: "output_0"
            }
        }
    ]
}
"""
ONNX_CONFIG = """\
name: "model"
platform: "onnxruntime_onnx"
backend: "onnxruntime"
default_model_filename: "llamav2.onnx"
max_batch_size: 0
input [
  {
    name: "input_ids"
    data_type: TYPE_INT64
    dims: [ -1, -1 ]
  },
{
    name: "attention_mask"
    data_type: TYPE_INT64
    dims: [ -1, -1 ]
  }
]
output [
  {
    name: "output_0"
    data_type: TYPE_FP32
    dims: [ -1, 2 ]
  }
]

instance_group [
    {
      count: 1
      kind: KIND_GPU
    }
]
"""
TOKENIZER_CONFIG = """\
name: "tokenizer"
max_batch_size: 0
backend: "python"

input [
{
    name: "prompt"
    data_type: TYPE_STRING
    dims: [ -1 ]
}
]
output [
{
    name: "input_ids"
    data_type: TYPE_INT64
    dims: [-1, -1]
},
{
    name: "attention_mask"
    data_type: TYPE_INT64
    dims: [-1, -1]
}
]
instance_group [
    {
      count: 1
      kind: KIND_GPU
    }
]
"""
TOKENIZER_MODEL_PY = """\
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            query = [
                t.decode("UTF-8")
                for t in pb_utils.get_input_tensor_by_name(request, "TEXT")
                .as_numpy()
                .tolist()
            ]
            tokens = self.tokenizer(text=query)
            outputs = list()
            for input_name in self.tokenizer.model_input_names:
                tensor_input = pb_utils.Tensor(input_name, tokens[input_name])
                outputs.append(tensor_input)
            responses.append(pb_utils.InferenceResponse(output_tensors=outputs))
        return responses
"""
ENGINE_ARGS_JSON = """\
{
    "model": "meta-llama/Llama-2-7b-chat-hf",
    "disable_log_requests": "true"
}
"""
OLD_VLLM_CONFIG = """\
name: "vllm"
backend: "python"
max_batch_size: 0

model_transaction_policy {
  decoupled: True
}

input [
  {
    name: "PROMPT"
    data_type: TYPE_STRING
    dims: [ -1 ]
  }
]

output [
  {
    name: "generated_text"
    data_type: TYPE_STRING
    dims: [ -1 ]
  }
]

instance_group [
  {
    count: 1
    kind: KIND_MODEL
  }
]
"""


def write_files(root: Path, files: dict[str, str]) -> Path:
    """Files below `root`; a name that ends in a slash is an empty directory."""
    for name, text in files.items():
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return root


def write_ensemble(root: Path) -> Path:
    return write_files(
        root,
        {
            "ensemble_model/1/": "",
            "ensemble_model/config.pbtxt": ENSEMBLE_CONFIG,
            "model/1/llamav2.onnx": "graph",
            "model/config.pbtxt": ONNX_CONFIG,
            "tokenizer/1/model.py": TOKENIZER_MODEL_PY,
            "tokenizer/1/tokenizer.json": "{}",
            "tokenizer/config.pbtxt": TOKENIZER_CONFIG,
        },
    )
