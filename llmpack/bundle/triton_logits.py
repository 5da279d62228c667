"""Targets `triton-ensemble` and `triton-logits`: the cache-free program behind Triton's onnxruntime backend.

triton-ensemble    prompt --> NAME-tokenizer --input_ids, attention_mask--> NAME-logits --> logits      as NAME
triton-logits                 the client     --input_ids, attention_mask--> NAME        --> logits

The version directory of the onnxruntime model is the artifact itself. ONNX Runtime takes the place of external weights
from the directory of the `.onnx` file and refuses to leave it, so the program must lie beside the weights, and this
way there is one copy of them even after the bundle was copied to another disk.
"""

from __future__ import annotations

from collections.abc import Mapping

from llmpack import __version__
from llmpack.artifact.manifest import LOGITS_PATH, Manifest, TensorSpec
from llmpack.artifact.reader import Artifact
from llmpack.bundle.options import EmitPlan
from llmpack.bundle.rendering import BundleFile, render_template
from llmpack.bundle.requirement import serving_requirement, torch_index_line
from llmpack.bundle.triton_config import EnsembleConfig, EnsembleStep, ModelConfig, TensorConfig, render_config
from llmpack.bundle.triton_files import client_files, describe_artifact, launch_files
from llmpack.bundle.triton_runtime import tokenisation
from llmpack.errors import UsageError

_TYPES = {"int64": "TYPE_INT64", "int32": "TYPE_INT32", "float32": "TYPE_FP32"}
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_PROMPT = TensorConfig("prompt", "TYPE_STRING", (-1,))


def logits_model_name(plan: EmitPlan) -> str:
    """The name of the model that computes logits."""
    return f"{plan.model_name}-logits" if plan.target == "triton-ensemble" else plan.model_name


def tokenizer_model_name(plan: EmitPlan) -> str:
    """The name of the ensemble's first model."""
    return f"{plan.model_name}-tokenizer"


def build_logits_files(plan: EmitPlan, artifact: Artifact) -> list[BundleFile]:
    """All files but the artifact, by path.

    Raises:
        UsageError: The artifact was compiled without the program.
    """
    logits = build_logits_config(plan, artifact.manifest)
    values = _values(plan, artifact.manifest)
    files = [BundleFile(f"{logits.name}/config.pbtxt", render_config(logits)), *launch_files(values)]
    if plan.target == "triton-ensemble":
        files += _tokenizer_files(plan, artifact, values)
        files += _ensemble_files(plan, logits)
    kind = plan.target.removeprefix("triton-")
    files += [BundleFile("README.md", render_template(f"README_{kind}.md", values)), *client_files(kind, values)]
    return sorted(files, key=lambda file: file.path)


def build_logits_config(plan: EmitPlan, manifest: Manifest) -> ModelConfig:
    """The model that the onnxruntime backend runs, with the tensors of the compiled program.

    Everything is said: left alone, the backend would complete max_batch_size to 4, which changes the shapes of
    requests, and run two instances on a CPU. Rows are the request's own, so Triton gathers none.

    Source: triton-inference-server/onnxruntime_backend, README ("Model Config Options", "Autocomplete").

    Raises:
        UsageError: The artifact was compiled without the program.
    """
    programs = [program for program in manifest.programs if program.kind == "logits"]
    if not programs:
        raise UsageError(
            "the artifact has no program that whole prompts pass through",
            where="--target", given=plan.target, allowed="for this artifact: triton, triton-python",
            next_step="Compile the model again with --logits.",
        )  # fmt: skip
    return ModelConfig(
        name=logits_model_name(plan),
        backend="onnxruntime",
        max_batch_size=0,
        inputs=tuple(map(_tensor, programs[0].inputs)),
        outputs=tuple(map(_tensor, programs[0].outputs)),
        is_decoupled=False,
        instance_kind="KIND_CPU",
        num_instances=plan.num_instances,
        parameters=(("intra_op_thread_count", "0"), ("inter_op_thread_count", "1")),
        default_model_filename=LOGITS_PATH,
    )


def build_tokenizer_config(plan: EmitPlan, manifest: Manifest) -> ModelConfig:
    """The model that turns prompts into rows of tokens, padded on the left."""
    ids = ("input_ids", "attention_mask")
    pad = manifest.special_tokens.pad_token_id
    return ModelConfig(
        name=tokenizer_model_name(plan),
        backend="python",
        max_batch_size=0,
        inputs=(_PROMPT,),
        outputs=tuple(TensorConfig(name, "TYPE_INT64", (-1, -1)) for name in ids),
        is_decoupled=False,
        instance_kind="KIND_CPU",
        num_instances=1,
        parameters=(
            (tokenisation.MAX_SEQ_LEN, str(manifest.max_seq_len)),
            (tokenisation.PAD_TOKEN_ID, str(0 if pad is None else pad)),
        ),
    )


def build_ensemble_config(plan: EmitPlan, logits: ModelConfig) -> EnsembleConfig:
    """The two models, one after the other."""
    ids = tuple(tensor.name for tensor in logits.inputs)
    results = tuple(tensor.name for tensor in logits.outputs)
    steps = (
        EnsembleStep(tokenizer_model_name(plan), (_PROMPT.name,), ids),
        EnsembleStep(logits.name, ids, results),
    )
    return EnsembleConfig(plan.model_name, (_PROMPT,), logits.outputs, steps)


def _tensor(spec: TensorSpec) -> TensorConfig:
    return TensorConfig(spec.name, _TYPES[spec.dtype], tuple(spec.shape))


def _tokenizer_files(plan: EmitPlan, artifact: Artifact, values: Mapping[str, str]) -> list[BundleFile]:
    """The model with its own copy of the tokenizer: Triton may fetch each model's directory alone."""
    config = build_tokenizer_config(plan, artifact.manifest)
    present = [name for name in _TOKENIZER_FILES if (artifact.path / name).is_file()]
    return [
        BundleFile(f"{config.name}/config.pbtxt", render_config(config)),
        BundleFile(f"{config.name}/1/model.py", render_template("model_tokenizer.py", values)),
        *(BundleFile(f"{config.name}/1/{name}", (artifact.path / name).read_bytes().decode()) for name in present),
    ]


def _ensemble_files(plan: EmitPlan, logits: ModelConfig) -> list[BundleFile]:
    """An ensemble needs a version directory too, which git would drop if it were empty."""
    config = render_config(build_ensemble_config(plan, logits))
    return [BundleFile(f"{plan.model_name}/config.pbtxt", config), BundleFile(f"{plan.model_name}/1/.keep", "")]


def _values(plan: EmitPlan, manifest: Manifest) -> dict[str, str]:
    values = {
        "LLMPACK_VERSION": __version__,
        "MODEL_NAME": plan.model_name,
        "LOGITS_NAME": logits_model_name(plan),
        "TOKENIZER_NAME": tokenizer_model_name(plan),
        "TRITON_RELEASE": plan.triton_release,
        "MAX_SEQ_LEN": str(manifest.max_seq_len),
        "VOCAB_SIZE": str(manifest.vocab_size),
        "ARTIFACT_FACTS": describe_artifact(manifest),
        "IMAGE_TAG": f"{plan.triton_release}-py3",
        "DOCKER_OPTIONS": "",
        "DOCKER_VOLUMES": '--volume "$here":/models:ro',
        "DOCKER_COMMAND": "/models/serve.sh",
        "DOCKER_INSTALL": "",
        "PREPARE": "",
        "LLMPACK": serving_requirement(manifest.engine),
        "TORCH_INDEX": torch_index_line(manifest.engine),
    }
    if plan.target == "triton-ensemble":  # its tokenizer is llmpack's
        pieces = {"PREPARE": ("prepare_llmpack", "prepare_verify"), "DOCKER_INSTALL": ("install_llmpack",)}
        values |= {
            name: "".join(render_template(t, values) for t in parts).rstrip("\n") for name, parts in pieces.items()
        }
    return values
