"""A Triton bundle that serves a checkpoint with transformers: what llmpack is measured beside."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

from llmpack.artifact.manifest import Manifest
from llmpack.bench.machine import count_cpus
from llmpack.bundle.rendering import BundleFile, render_template
from llmpack.bundle.triton_config import ModelConfig, TensorConfig, render_config
from llmpack.bundle.write import staged_bundle, write_files
from llmpack.errors import UsageError

MODEL_NAME = "transformers"
_QUEUE_DELAY_US = 20_000  # that of the target triton-python
_PREPARE = """if ! python3 -c 'import torch, transformers' 2>/dev/null; then
    echo "error: torch or transformers is missing in $(command -v python3)" >&2
    exit 1
fi
"""


def emit_transformers(checkpoint: Path, output: Path, manifest: Manifest, *, rows: int, num_instances: int) -> None:
    """Writes a bundle to `output`, where nothing may be yet. It names the checkpoint where it lies.

    Args:
        checkpoint: A directory that transformers loads.
        output: The bundle to be.
        manifest: Of the artifact beside which it is measured; gives the dtype.
        rows: Requests that Triton may gather into one generation; 1 for none.
        num_instances: Copies of the model.

    Raises:
        UsageError: The checkpoint is not the model of the artifact, or the output cannot be written.
    """
    check_checkpoint(checkpoint, manifest)
    config = _build_config(checkpoint, manifest.dtype, rows, num_instances)
    model_py = files("llmpack.bench").joinpath("transformers_model.py.in").read_text(encoding="utf-8")
    with staged_bundle(output) as stage:
        write_files(
            stage,
            [
                BundleFile(f"{MODEL_NAME}/config.pbtxt", render_config(config)),
                BundleFile(f"{MODEL_NAME}/1/model.py", model_py),
                BundleFile("serve.sh", render_template("serve.sh", {"PREPARE": _PREPARE}), is_executable=True),
            ],
        )


def check_checkpoint(checkpoint: Path, manifest: Manifest) -> None:
    """Makes sure that the artifact could have been compiled from the checkpoint.

    Raises:
        UsageError: It is no checkpoint directory, or its shapes are others.
    """
    try:
        config = json.loads((checkpoint / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(
            "not a checkpoint directory that transformers loads", where="--triton", given=str(checkpoint),
            allowed="a directory with config.json, tokenizer and weights",
        ) from error  # fmt: skip
    text_config = config.get("text_config", config)
    for name in ("hidden_size", "num_hidden_layers", "vocab_size"):
        compiled = getattr(manifest, name)
        if name in text_config and text_config[name] != compiled:
            raise UsageError(
                "not the model that was compiled", where=f"{checkpoint / 'config.json'} {name}",
                given=text_config[name], allowed=str(compiled),
            )  # fmt: skip


def _build_config(checkpoint: Path, dtype: str, rows: int, num_instances: int) -> ModelConfig:
    return ModelConfig(
        name=MODEL_NAME,
        backend="python",
        max_batch_size=rows,
        inputs=(TensorConfig("prompt", "TYPE_STRING", (1,)), TensorConfig("sampling_parameters", "TYPE_STRING", (1,))),
        outputs=(TensorConfig("generated_text", "TYPE_STRING", (1,)),),
        is_decoupled=False,
        instance_kind="KIND_CPU",
        num_instances=num_instances,
        queue_delay_us=_QUEUE_DELAY_US if rows > 1 else None,
        parameters=(
            ("checkpoint", str(checkpoint.resolve())),
            ("dtype", dtype),
            # By default every instance takes all processors, and two of them mostly wait for each other.
            ("num_threads", str(max(1, count_cpus() // num_instances))),
        ),
    )
