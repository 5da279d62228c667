"""Correct configs as people write them, one per way of starting a server: nothing may be found in them."""

from __future__ import annotations

_VARIABLES = """\
#!/bin/bash
set -euo pipefail
export HF_HOME=/data/hf
MODEL=${MODEL:-org/model-8b}
if [ "${1:-}" = "dev" ]; then
  EXTRA="--enforce-eager --max-model-len 2048"
else
  EXTRA="--max-model-len 8192"
fi
vllm serve "$MODEL" $EXTRA --host ${HOST:-0.0.0.0} --port ${PORT:-8000} --api-key "$VLLM_API_KEY" \\
    --chat-template ./tools.jinja --allowed-origins '["*"]' --middleware a.B --middleware c.D
"""
_TOOLS = """\
vllm serve org/model-8b \\
    --enable-auto-tool-choice --tool-call-parser hermes --reasoning-parser qwen3 \\
    --served-model-name big small \\
    --limit-mm-per-prompt '{"image": 2}' --allowed-local-media-path /tmp \\
    --hf-overrides '{"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}' \\
    -tp 2 -pp=2 -dp 2 -O3
"""
_SCALED = """\
vllm serve org/model-8b --max-model-len 32k --max-num-batched-tokens 8K --no-enable-prefix-caching -cc.mode 3
vllm serve org/model-8b --max-model-len auto --async-scheduling -sc '{"method": "ngram", "num_speculative_tokens": 3}'
vllm serve org/model-8b --max-model-len -1 --compilation-config.cudagraph_mode FULL --kv-cache-dtype fp8
"""
_JOBS = """\
trap 'kill 0' INT
wait_for() {
  local port=$1
  until curl -sf "localhost:${port}/health" > /dev/null; do sleep 1; done
}
for i in 0 1; do
  CUDA_VISIBLE_DEVICES=$i VLLM_PORT=$((20000 + i)) vllm serve org/model-8b --port $((8000 + i)) \\
    --kv-transfer-config "{\\"kv_connector\\": \\"NixlConnector\\", \\"kv_rank\\": $i}" > "log$((i)).txt" 2>&1 &
done
wait_for 8000
vllm bench serve --model org/model-8b --dataset-name random --random-input-len 128 | tee bench.log
pgrep -f "vllm serve" && pkill -f "vllm serve"
cat <<EOF
vllm serve is started with: vllm serve MODEL --no-such-flag
EOF
"""
_API_SERVER = """\
CUDA_VISIBLE_DEVICES=0,1 nohup python3 -m vllm.entrypoints.openai.api_server --host 0.0.0.0 --port 8000 \\
    --model org/model-awq --quantization awq --gpu-memory-utilization 0.9 --tensor-parallel-size 2 > vllm.log 2>&1 &
PID=$!
args=(--model x --max-model-len 4096)
python -m vllm.entrypoints.openai.api_server "${args[@]}"
"""
_LORA = """\
vllm serve org/model-7b --enable-lora --max-loras 4 --max-lora-rank=64 --fully-sharded-loras \\
    --lora-modules sql=$HOME/sql '{"name": "b", "path": "/b"}'
"""
_LAUNCHERS = """\
srun --ntasks=1 vllm serve "${1:?model}" --tensor-parallel-size "$SLURM_GPUS_ON_NODE" "$@" &
numactl -N 0 vllm serve org/model-8b --port=8001 &
uv run vllm serve org/model-8b --port 8003
"""
_DOCKER_RUN = """\
docker run --runtime nvidia --gpus all \\
    -v ~/.cache/huggingface:/root/.cache/huggingface \\
    --env "HF_TOKEN=<secret>" -p 8000:8000 --ipc=host \\
    vllm/vllm-openai:latest --model org/model-7b
"""
_PINNED = """\
pip install vllm==0.6.3
vllm serve org/model-7b --disable-log-requests --swap-space 4 --enable-chunked-prefill --num-scheduler-steps 8
"""
_DOCKERFILE = """\
# syntax=docker/dockerfile:1
ARG VLLM_VERSION=v0.11.0
FROM vllm/vllm-openai:${VLLM_VERSION} AS base
RUN <<EOT
set -e
pip install --no-cache-dir foo
EOT
COPY <<EOF /etc/x.conf
CMD ["vllm", "serve", "m", "--no-such-flag"]
EOF
ENV MODEL=org/model-7b \\
    PORT=9000
EXPOSE 8000
ENTRYPOINT ["vllm", "serve"]
CMD ["org/model-7b", "--max-model-len", "8192", "--port", "8000"]
"""
_COMPOSE = """\
x-vllm: &base
  image: vllm/vllm-openai:v0.11.0
  ipc: host
  env_file: [{path: vllm.env, required: false}]
  environment:
    - HF_TOKEN=${HF_TOKEN}
    - VLLM_LOGGING_LEVEL=DEBUG
  deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}}}
services:
  chat:
    <<: *base
    command: >
      --model ${MODEL_NAME:-org/model-7b}
      --max-model-len ${MAX_LEN:-8192}
      --gpu-memory-utilization 0.9
      --enable-prefix-caching
    ports: ["8000:8000"]
  embed:
    <<: *base
    entrypoint: ["vllm", "serve"]
    command: ["org/embedder", "--runner", "pooling", "--port", "8001"]
    ports:
      - target: 8001
        published: 8001
  web:
    image: ghcr.io/open-webui/open-webui:main
    environment: {OPENAI_API_BASE_URL: http://chat:8000/v1}
    ports: ["3000:8080"]
"""
_KUBERNETES = """\
apiVersion: v1
kind: Secret
metadata: {name: hub}
stringData: {token: "REPLACE_ME"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: limits}
data: {MAX_MODEL_LEN: "8192"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: llm}
spec:
  template:
    spec:
      volumes:
        - name: cache
          persistentVolumeClaim: {claimName: llm}
        - name: shm
          emptyDir: {medium: Memory, sizeLimit: "2Gi"}
      containers:
        - name: llm
          image: vllm/vllm-openai:latest
          command: ["/bin/sh", "-c"]
          args: ["vllm serve org/model-7b --max_num_batched_tokens 1024 --max-model-len $(MAX_MODEL_LEN)"]
          envFrom: [{configMapRef: {name: limits}}]
          env:
            - name: HF_TOKEN
              valueFrom: {secretKeyRef: {name: hub, key: token}}
          ports: [{containerPort: 8000}]
          volumeMounts:
            - {mountPath: /dev/shm, name: shm}
            - {mountPath: /root/.cache, name: cache}
          livenessProbe: {httpGet: {path: /health, port: 8000}}
---
apiVersion: v1
kind: Service
metadata: {name: llm}
spec: {ports: [{port: 80, targetPort: 8000}], selector: {app: llm}}
"""
_SYSTEMD = """\
[Service]
User=vllm
Environment="HF_HOME=/data/hf" VLLM_LOGGING_LEVEL=INFO
EnvironmentFile=-/etc/vllm.env
ExecStartPre=/bin/sleep 1
ExecStart=/opt/vllm/bin/vllm serve org/model-8b \\
  --host 0.0.0.0 --port 8000 --max-model-len 8192
Restart=always
"""
_ENV = """\
# read by the unit
MODEL=org/model-8b
MAX_MODEL_LEN=8192
VLLM_ATTENTION_BACKEND=FLASH_ATTN
HF_TOKEN=
"""
_ARGUMENTS = """\
model: org/model-8b
host: "127.0.0.1"
port: 6379
uvicorn-log-level: "info"
tensor-parallel-size: "2"
max-model-len: 4096
enable-auto-tool-choice: true
gpu_memory_utilization: 0.9
lora-modules:
  - sql=/p
"""
_PYTHON = """\
import argparse
from vllm import LLM, SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs

llm = LLM(model="org/model-125m", tensor_parallel_size=2, max_model_len=4096, enforce_eager=True, dtype="auto")
other = LLM("org/model-125m", enable_lora=True, max_lora_rank=64, limit_mm_per_prompt={"image": 2}, quantization="awq",
            kv_cache_dtype="fp8", compilation_config=3, hf_overrides={"a": 1})
parser = EngineArgs.add_cli_args(argparse.ArgumentParser())
args = parser.parse_args()
engine = EngineArgs(**vars(args))
more = AsyncEngineArgs(model=args.model, max_model_len=None, gpu_memory_utilization=1, download_dir="/tmp")
"""
_VLLM_PBTXT = """\
# served by vLLM: é
backend: "vllm"
instance_group [ { count: 1 kind: KIND_MODEL } ]
"""
_VLLM_JSON = """\
{
    "model": "org/model-125m",
    "gpu_memory_utilization": 0.5,
    "enforce_eager": true,
    "disable_log_stats": false
}
"""
_SEQUENCE_PBTXT = """\
name: "sequence"
platform: "onnxruntime_onnx"
max_batch_size: 8
version_policy: { specific { versions: [1] } }
sequence_batching {
  max_sequence_idle_microseconds: 10000000
  oldest { max_candidate_sequences: 1024 max_queue_delay_microseconds: 10000 }
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
    { name: "CORRID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] }
  ]
}
input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
instance_group [ { count: 2 kind: KIND_CPU } ]
optimization { execution_accelerators { gpu_execution_accelerator: [ { name: "tensorrt" } ] } }
model_warmup [
  { name: "w" batch_size: 1 inputs { key: "INPUT" value: { data_type: TYPE_INT32 dims: [1] zero_data: true } } }
]
"""
_BLS_PBTXT = """\
name: "bls"
backend: "python"
input [ { name: "MODEL_NAME" data_type: TYPE_STRING dims: [ 1 ] } ]
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 4 ] } ]
instance_group [{ kind: KIND_CPU }]
parameters: { key: "EXECUTION_ENV_PATH", value: {string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz"} }
response_cache { enable: true }
"""
_BLS_PY = """\
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            value = pb_utils.get_input_tensor_by_name(request, "INPUT0")
            name = pb_utils.get_input_tensor_by_name(request, "MODEL_NAME")
            question = pb_utils.InferenceRequest(
                model_name=name, requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", value.as_numpy())]
            )
            answer = pb_utils.get_output_tensor_by_name(question.exec(), "OUT")
            output = pb_utils.Tensor("OUTPUT0", answer.as_numpy())
            responses.append(pb_utils.InferenceResponse(output_tensors=[output]))
        return responses

    def finalize(self):
        pass
"""
_PRE_PBTXT = """\
name: "pre"
backend: "python"
max_batch_size: 32
input [
  { name: "QUERY" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "LENGTH" data_type: TYPE_INT32 dims: [ 1 ] optional: true }
]
output [ { name: "INPUT_ID" data_type: TYPE_INT32 dims: [ -1 ] } ]
parameters { key: "tokenizer_dir" value: { string_value: "/models/llama" } }
instance_group [ { count: 1 kind: KIND_CPU } ]
"""
_LLM_PBTXT = """\
name: "llm"
backend: "tensorrtllm"
max_batch_size: 32
model_transaction_policy { decoupled: false }
dynamic_batching {
  preferred_batch_size: [ 32 ]
  max_queue_delay_microseconds: 100
  default_queue_policy: { max_queue_size: 0 }
}
input [
  { name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] allow_ragged_batch: true },
  { name: "input_lengths" data_type: TYPE_INT32 dims: [ 1 ] reshape: { shape: [ ] } optional: true }
]
output [
  { name: "output_ids" data_type: TYPE_INT32 dims: [ -1, -1 ] },
  { name: "cum_log_probs" data_type: TYPE_FP32 dims: [ -1 ] },
  { name: "context_logits" data_type: TYPE_FP32 dims: [ -1, -1 ] }
]
parameters: { key: "gpt_model_type" value: { string_value: "inflight_fused_batching" } }
"""
_ENSEMBLE_PBTXT = """\
name: "all"
platform: "ensemble"
max_batch_size: 32
input [ { name: "text" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "ids" data_type: TYPE_INT32 dims: [ -1, -1 ] } ]
ensemble_scheduling { step [
  { model_name: "pre" model_version: -1 input_map { key: "QUERY" value: "text" }
    output_map { key: "INPUT_ID" value: "tokens" } },
  { model_name: "llm" model_version: -1 input_map { key: "input_ids" value: "tokens" }
    output_map { key: "output_ids" value: "ids" } }
] }
"""
_EMBEDDING_PBTXT = """\
name: "embedding"
platform: "tensorrt_plan"
max_batch_size: 0
input [
  { name: "input_ids" data_type: TYPE_INT32 dims: [-1, 128] },
  { name: "attention_mask" data_type: TYPE_INT32 dims: [-1, 128] }
]
output [ { name: "sentence_embedding" data_type: TYPE_FP32 dims: [-1, 384] } ]
instance_group [ { count: 1 kind: KIND_GPU gpus: [0] } ]
"""
_RESNET_PBTXT = """\
platform: "pytorch_libtorch"
max_batch_size: 8
input { name: "INPUT__0" data_type: TYPE_FP32 dims: [3, 224, 224] format: FORMAT_NCHW }
output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: [1000] label_filename: "labels.txt" }
dynamic_batching { }
"""

REALISTIC: dict[str, dict[str, str]] = {
    "variables": {"serve.sh": _VARIABLES},
    "tools": {"serve.sh": _TOOLS},
    "scaled numbers and dotted flags": {"serve.sh": _SCALED},
    "background jobs": {"serve.sh": _JOBS},
    "api server": {"serve.sh": _API_SERVER},
    "adapters": {"serve.sh": _LORA},
    "launchers": {"serve.sh": _LAUNCHERS},
    "docker run": {"serve.sh": _DOCKER_RUN},
    "pinned old release": {"serve.sh": _PINNED},
    "Dockerfile": {"Dockerfile": _DOCKERFILE},
    "compose": {"compose.yaml": _COMPOSE, "vllm.env": "HF_HOME=/data\n"},
    "Kubernetes": {"deployment.yaml": _KUBERNETES},
    "systemd": {"vllm.service": _SYSTEMD},
    "env file": {"prod.env": _ENV},
    "arguments in YAML": {"config.yaml": _ARGUMENTS},
    "Python": {"engine.py": _PYTHON},
    "vLLM in Triton": {"vllm_model/config.pbtxt": _VLLM_PBTXT, "vllm_model/1/model.json": _VLLM_JSON},
    "sequence batching": {"sequence/config.pbtxt": _SEQUENCE_PBTXT, "sequence/1/model.onnx": "graph"},
    "business logic": {"bls/config.pbtxt": _BLS_PBTXT, "bls/1/model.py": _BLS_PY},
    "ensemble": {
        "pre/config.pbtxt": _PRE_PBTXT,
        "pre/1/model.py": "",
        "llm/config.pbtxt": _LLM_PBTXT,
        "llm/1/engine": "",
        "all/config.pbtxt": _ENSEMBLE_PBTXT,
        "all/1/.keep": "",
    },
    "embeddings": {"embedding/config.pbtxt": _EMBEDDING_PBTXT, "embedding/1/model.plan": "engine"},
    "images": {"resnet/config.pbtxt": _RESNET_PBTXT, "resnet/1/model.pt": "graph"},
}

# Files that speak of models and servers and yet start none.
FOREIGN: dict[str, str] = {
    "agents.py": 'from crewai import LLM\nllm = LLM(model="gpt-4o", temperature=0.7, base_url="http://x")\n',
    "engine.py": "from tensorrt_llm import LLM\nllm = LLM(model='m', backend='pytorch', max_batch_size=4)\n",
    "train.yaml": "model_name: x\nmax_model_len: 4096\nlearning_rate: 1e-4\nlora: {r: 8}\nepochs: 3\n",
    "web/model.json": '{"format": "layers-model", "modelTopology": {}, "weightsManifest": []}\n',
    "ci.yml": "on: [push]\njobs: {t: {services: {v: {image: vllm/vllm-openai}}, steps: [{run: vllm serve m --x}]}}\n",
    "notes.md": "vllm serve m --no-such-flag\n",
}
