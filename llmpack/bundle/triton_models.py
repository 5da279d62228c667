"""The model of each Triton target that llmpack's own runtime serves: its config and its model.py."""

from __future__ import annotations

from llmpack.artifact.manifest import Manifest
from llmpack.bundle.options import EmitPlan
from llmpack.bundle.triton_config import ModelConfig, TensorConfig
from llmpack.bundle.triton_runtime import settings
from llmpack.validate.rules.triton_contract import VLLM_BACKEND

DELTAS_SINCE = "24.03"
_METRICS_SINCE = "24.08"
ARTIFACT_DIR = "artifact"

_NOT_SERVED = frozenset({"image", "embedding_request"})  # no artifact has a vision tower or pools embeddings
_OUTPUT_DIMS = (-1,)
_QUEUE_DELAY_US = 20_000
_PYTHON_MAX_TOKENS = 256


def build_streaming_config(plan: EmitPlan) -> ModelConfig:
    """Target `triton`: the vLLM backend's tensors as the release has them.

    Source: `VLLM_BACKEND` for the tensors; streamed text is the new text since release 24.03, before that prompt and
    text so far (triton-inference-server/vllm_backend, pull request 35).
    """
    known = [t for t in VLLM_BACKEND if t.since <= plan.triton_release and t.name not in _NOT_SERVED]
    stream_text = "delta" if plan.triton_release >= DELTAS_SINCE else "cumulative"
    return ModelConfig(
        name=plan.model_name,
        backend="python",
        max_batch_size=0,
        inputs=tuple(
            TensorConfig(t.name, t.data_type, (1,), is_optional=t.name != "text_input")
            for t in known
            if t.side == "input"
        ),
        outputs=tuple(TensorConfig(t.name, t.data_type, _OUTPUT_DIMS) for t in known if t.side == "output"),
        is_decoupled=True,
        instance_kind="KIND_CPU",
        num_instances=plan.num_instances,
        parameters=(
            (settings.ARTIFACT, artifact_reference(plan)),
            (settings.STREAM_TEXT, stream_text),
            (settings.MAX_TOKENS, "16"),
            (settings.MAX_WAITING, "256"),
            (settings.NUM_THREADS, "0"),
            (settings.REPORT_METRICS, "true"),
        ),
    )


def build_python_config(plan: EmitPlan, manifest: Manifest) -> ModelConfig:
    """Target `triton-python`: prompt -> generated_text, as many rows at once as there are slots."""
    return ModelConfig(
        name=plan.model_name,
        backend="python",
        max_batch_size=manifest.batch_size,
        inputs=(
            TensorConfig("prompt", "TYPE_STRING", (1,)),
            TensorConfig("sampling_parameters", "TYPE_STRING", (1,), is_optional=True),
        ),
        outputs=(TensorConfig("generated_text", "TYPE_STRING", (1,)),),
        is_decoupled=False,
        instance_kind="KIND_CPU",
        num_instances=plan.num_instances,
        queue_delay_us=_QUEUE_DELAY_US,
        parameters=(
            (settings.ARTIFACT, artifact_reference(plan)),
            (settings.MAX_TOKENS, str(min(_PYTHON_MAX_TOKENS, manifest.max_seq_len))),
            (settings.NUM_THREADS, "0"),
            (settings.REPORT_METRICS, "true"),
        ),
    )


def build_vllm_config(plan: EmitPlan) -> ModelConfig:
    """Target `triton-vllm`: all tensors of the release's backend, whose engine `1/model.json` describes."""
    known = [t for t in VLLM_BACKEND if t.since <= plan.triton_release]
    has_metrics = plan.triton_release >= _METRICS_SINCE
    return ModelConfig(
        name=plan.model_name,
        backend="vllm",
        max_batch_size=0,
        inputs=tuple(
            TensorConfig(t.name, t.data_type, _OUTPUT_DIMS if t.name == "image" else (1,), t.name != "text_input")
            for t in known
            if t.side == "input"
        ),
        outputs=tuple(TensorConfig(t.name, t.data_type, _OUTPUT_DIMS) for t in known if t.side == "output"),
        is_decoupled=True,
        instance_kind="KIND_MODEL",
        num_instances=1,
        parameters=((settings.REPORT_METRICS, "true"),) if has_metrics else (),
    )


def artifact_reference(plan: EmitPlan) -> str:
    """What the config calls the artifact: relative to the version directory, unless absolute paths are wanted."""
    return ARTIFACT_DIR if plan.is_artifact_inside else str(plan.artifact)
