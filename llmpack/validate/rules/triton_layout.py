"""LP120 and LP123: what Triton expects of a model directory and its config, and settings that do nothing there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from llmpack.validate.model import Location, ServingConfig, TritonModel
from llmpack.validate.rules.fixes import edit_span
from llmpack.validate.rules.rule import Context, Discrepancy, Outcome

_TOKEN_NAMES = frozenset({"input_ids", "attention_mask", "token_type_ids", "position_ids"})


def backend_of(model: TritonModel) -> str:
    """The backend that runs the model: the field, else what the platform or the files stand for."""
    if model.backend:
        return model.backend
    if model.platform:
        return model.platform.partition("_")[0]
    return "python" if any(file.endswith("/model.py") for file in model.version_files) else ""


def is_ensemble(model: TritonModel) -> bool:
    """Whether the model only connects others."""
    return model.platform == "ensemble" or model.backend == "ensemble" or bool(model.ensemble_steps)


def check_layout(config: ServingConfig, _context: Context) -> Iterator[Outcome]:
    """LP120: directory, name, version directories, batch size and transaction policy."""
    model = config.triton
    if config.kind != "config.pbtxt" or model is None:
        return
    if model.is_repository:
        yield from _check_directory(model)
    yield from _check_batch_size(model)
    yield from _check_policy(model)
    yield from _check_instances(model)


def _check_directory(model: TritonModel) -> Iterator[Outcome]:
    directory = PurePath(model.directory).name
    if model.name is not None and model.name != directory:
        place = model.locations.get("name", model.location)
        yield Discrepancy(
            place,
            f"the name must be that of the model's directory, {directory}",
            given=model.name,
            compiled=directory,
            relation="==",
            fix=None,
        )
    if not model.version_dirs:
        yield Discrepancy(
            model.location, "there is no version directory such as 1/; git does not keep empty ones", relation="exists"
        )
    for version in model.version_dirs:
        if not any(file.startswith(f"{version}/") for file in model.version_files):
            yield from _describe_empty_version(model, version)
    yield from _check_program(model)


def _describe_empty_version(model: TritonModel, version: str) -> Iterator[Outcome]:
    place = Location(str(PurePath(model.directory, version)))
    if is_ensemble(model):
        message = f"{version}/ is empty and git will drop it; put a placeholder file there"
        yield Discrepancy(place, message, relation="is kept", severity="warning")
    else:
        yield Discrepancy(place, f"{version}/ is empty: there is no model", relation="holds the model")


def _check_program(model: TritonModel) -> Iterator[Outcome]:
    """Only where the version directories hold something else."""
    expected = {"python": "model.py", "vllm": "model.json", "onnxruntime": "model.onnx"}.get(backend_of(model))
    name = model.default_model_filename or expected
    for version in model.version_dirs:
        files = [file for file in model.version_files if file.startswith(f"{version}/")]
        if name and files and not any(file.startswith(f"{version}/{name}") for file in files):
            place = Location(str(PurePath(model.directory, version)))
            yield Discrepancy(place, f"{version}/{name} is missing", relation="exists", compiled=name)


def _check_batch_size(model: TritonModel) -> Iterator[Outcome]:
    if backend_of(model) == "vllm" and model.max_batch_size:
        place = model.locations.get("max_batch_size", model.location)
        yield Discrepancy(
            place,
            "the vLLM backend batches by itself and needs max_batch_size 0",
            given=model.max_batch_size,
            compiled=0,
            relation="==",
            fix=edit_span(place, model.spans.get("max_batch_size"), "0", "set max_batch_size to 0"),
        )
    batching = model.dynamic_batching
    for size in batching.preferred_batch_size if batching is not None and model.max_batch_size else ():
        if size > (model.max_batch_size or 0) and batching is not None:
            message = "a preferred batch is larger than max_batch_size"
            yield Discrepancy(batching.location, message, given=size, compiled=model.max_batch_size, relation="<=")


def _check_policy(model: TritonModel) -> Iterator[Outcome]:
    if backend_of(model) == "vllm" and model.decoupled is False:
        place = model.decoupled_location or model.location
        message = "the vLLM backend streams and needs the decoupled transaction policy"
        yield Discrepancy(place, message, given=False, compiled=True, relation="==")
    if is_ensemble(model) and model.instance_groups:
        message = "an ensemble has no instances of its own"
        yield Discrepancy(model.instance_groups[0].location, message, relation="absent")


def _check_instances(model: TritonModel) -> Iterator[Outcome]:
    for group in model.instance_groups:
        if backend_of(model) == "vllm" and (group.count or 1) > 1:
            message = "each instance loads the whole model again; one engine batches all requests"
            yield Discrepancy(group.location, message, given=group.count, compiled=1, relation="==")
        if group.kind == "KIND_CPU" and group.gpus:
            message = "KIND_CPU takes no gpus"
            yield Discrepancy(group.location, message, given=list(group.gpus), relation="absent")


def check_idle_settings(config: ServingConfig, context: Context) -> Iterator[Outcome]:
    """LP123: batching that can do nothing and GPU instances of what runs on the CPU."""
    model = config.triton
    if config.kind != "config.pbtxt" or model is None:
        return
    yield from _check_batching(model)
    yield from _check_ragged(model)
    yield from _check_kinds(model, context)


def _check_batching(model: TritonModel) -> Iterator[Outcome]:
    batching = model.dynamic_batching
    if batching is None or model.max_batch_size:
        return
    yield Discrepancy(
        batching.location,
        "dynamic_batching does nothing while max_batch_size is 0",
        given="dynamic_batching",
        relation="max_batch_size > 0",
        fix=edit_span(batching.location, batching.entry_span, "", "remove dynamic_batching"),
    )


def _check_ragged(model: TritonModel) -> Iterator[Outcome]:
    for tensor in model.inputs:
        if tensor.allow_ragged_batch and not (model.max_batch_size and model.dynamic_batching):
            message = f"allow_ragged_batch of {tensor.name} does nothing without dynamic batching"
            yield Discrepancy(tensor.location, message, given=True, relation="needs dynamic_batching")


def _check_kinds(model: TritonModel, context: Context) -> Iterator[Outcome]:
    facts = context.facts
    runs_on_cpu = facts is not None and facts.devices == ("cpu",) and not is_ensemble(model)
    for group in model.instance_groups:
        if group.kind != "KIND_GPU" or not (runs_on_cpu or is_tokenizer(model)):
            continue
        what = "a tokenizer" if is_tokenizer(model) else "an artifact for the CPU"
        yield Discrepancy(
            group.location,
            f"{what} does nothing on a GPU, and a host without one refuses the model",
            given="KIND_GPU",
            compiled="KIND_CPU",
            relation="==",
            fix=None if group.gpus else edit_span(group.location, group.kind_span, "KIND_CPU", "set kind to KIND_CPU"),
        )


def is_tokenizer(model: TritonModel) -> bool:
    """Whether the model turns text into token ids and nothing else."""
    takes_text = bool(model.inputs) and all(tensor.data_type == "TYPE_STRING" for tensor in model.inputs)
    gives_ids = bool(model.outputs) and all(tensor.name in _TOKEN_NAMES for tensor in model.outputs)
    return takes_text and gives_ids
