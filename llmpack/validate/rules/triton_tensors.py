"""LP121: tensor names, types and shapes on both sides of every border between models, files and clients."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import PurePath

from llmpack.validate.model import EnsembleStep, JsonValue, ModelPy, ServingConfig, TritonModel, TritonTensor
from llmpack.validate.rules.fixes import edit_span
from llmpack.validate.rules.limits import NO_ARTIFACT
from llmpack.validate.rules.rule import Context, Discrepancy, Outcome, Unknown
from llmpack.validate.rules.triton_contract import FIRST_RELEASE, VLLM_BACKEND, ContractTensor, release_of_image
from llmpack.validate.rules.triton_layout import backend_of, is_ensemble

_FLOATS = frozenset({"TYPE_FP32", "TYPE_FP16", "TYPE_BF16"})
_LOGITS = re.compile(r"logits|out(?:put)?_*\d*", re.IGNORECASE)
_FAMILIES = re.compile(r"llama|gpt|mi[sx]tral|qwen|gemma|phi-?\d|falcon|bloom|causal", re.IGNORECASE)


def check_tensors(config: ServingConfig, context: Context) -> Iterator[Outcome]:
    """LP121 for one model: against its backend's contract, its model.py, its steps or its graph."""
    model = config.triton
    if config.kind != "config.pbtxt" or model is None:
        return
    if backend_of(model) == "vllm":
        yield from _check_contract(model, _triton_release(config, context))
    if model.model_py is not None:
        yield from _check_model_py(model, model.model_py)
    if is_ensemble(model):
        yield from _check_ensemble(
            model, {sibling.name or PurePath(sibling.directory).name: sibling for sibling in config.siblings}
        )
    elif backend_of(model) != "vllm":
        yield from _check_logits(model, context)


def _triton_release(config: ServingConfig, context: Context) -> str | None:
    image = config.container.image if config.container else None
    return context.releases.get("triton") or release_of_image(image)


def _check_contract(model: TritonModel, release: str | None) -> Iterator[Outcome]:
    for side, tensors in (("input", model.inputs), ("output", model.outputs)):
        contract = {tensor.name: tensor for tensor in VLLM_BACKEND if tensor.side == side}
        for tensor in tensors:
            known = contract.get(tensor.name)
            if known is None:
                yield _describe_foreign(tensor, side, contract)
            else:
                yield from _check_known(tensor, known, release)


def _describe_foreign(tensor: TritonTensor, side: str, contract: dict[str, ContractTensor]) -> Discrepancy:
    nearest = get_close_matches(tensor.name.lower(), contract, n=1, cutoff=0.5) or [
        "text_input" if side == "input" else "text_output"
    ]
    return Discrepancy(
        tensor.location,
        f"the vLLM backend has no {side} called {tensor.name}; the nearest is {nearest[0]}",
        given=tensor.name,
        compiled=nearest[0],
        relation="in the contract",
    )


def _check_known(tensor: TritonTensor, known: ContractTensor, release: str | None) -> Iterator[Outcome]:
    if tensor.data_type and tensor.data_type != known.data_type:
        yield Discrepancy(
            tensor.location,
            f"the vLLM backend's {known.name} is {known.data_type}",
            given=tensor.data_type,
            compiled=known.data_type,
            relation="==",
            fix=edit_span(tensor.location, tensor.data_type_span, known.data_type, f"set data_type of {known.name}"),
        )
    if len(tensor.dims) > 1:
        yield Discrepancy(
            tensor.location, f"the vLLM backend's {known.name} has one dimension", given=list(tensor.dims), compiled=[1]
        )
    if release is not None and known.since > release:
        message = f"the vLLM backend has {known.name} from {known.since} on, not in {release}"
        yield Discrepancy(tensor.location, message, given=known.name, compiled=known.since, relation=">=")
    elif release is None and known.since > FIRST_RELEASE:
        yield Unknown(tensor.location, f"{known.name} needs Triton {known.since}; name yours with --triton-release")


def _check_model_py(model: TritonModel, code: ModelPy) -> Iterator[Outcome]:
    declared_in, declared_out = [t.name for t in model.inputs], [t.name for t in model.outputs]
    for read in code.reads:
        if model.inputs and read.name not in declared_in:
            yield Discrepancy(
                read.location,
                f"model.py reads {read.name}, config.pbtxt declares {_join(declared_in)}",
                given=read.name,
                compiled=declared_in[0] if len(declared_in) == 1 else None,
                relation="declared",
            )
    for written in code.writes:
        if model.outputs and written.name not in declared_out:
            message = f"model.py writes {written.name}, which config.pbtxt does not declare: it is dropped silently"
            yield Discrepancy(written.location, message, given=written.name, relation="declared", severity="warning")
    never = [name for name in declared_out if name not in {item.name for item in code.writes}]
    for tensor in model.outputs if code.writes_are_complete and code.writes else ():
        if tensor.name in never:
            message = f"model.py never writes {tensor.name}"
            yield Discrepancy(tensor.location, message, given=tensor.name, relation="written")
    if code.finalize_location is not None:
        message = "Triton calls finalize without arguments: this one is never run"
        yield Discrepancy(code.finalize_location, message, relation="finalize(self)", severity="warning")


def _join(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


def _check_ensemble(model: TritonModel, siblings: dict[str, TritonModel]) -> Iterator[Outcome]:
    sources = {tensor.name: (model, tensor) for tensor in model.inputs}
    for step in model.ensemble_steps:
        inner = siblings.get(step.model_name)
        outputs = {} if inner is None else {tensor.name: tensor for tensor in inner.outputs}
        for entry in step.output_map:
            if inner is not None and entry.key in outputs:
                sources[entry.value] = (inner, outputs[entry.key])
    for step in model.ensemble_steps:
        yield from _check_step(step, siblings, sources, model)
    for tensor in model.outputs:
        source = sources.get(tensor.name)
        if source is not None and source[0] is not model:
            yield from _check_pair((model, tensor), source)
        elif not _is_from_unknown(model, tensor.name, siblings):
            message = f"no step produces the ensemble's output {tensor.name}"
            yield Discrepancy(tensor.location, message, given=tensor.name, relation="produced")


def _is_from_unknown(model: TritonModel, name: str, siblings: dict[str, TritonModel]) -> bool:
    """Whether a step whose model is not here, or declares no tensors, is said to produce `name`."""
    for step in model.ensemble_steps:
        inner = siblings.get(step.model_name)
        if (inner is None or not inner.outputs) and any(entry.value == name for entry in step.output_map):
            return True
    return False


_Sources = dict[str, tuple[TritonModel, TritonTensor]]


def _check_step(
    step: EnsembleStep, siblings: dict[str, TritonModel], sources: _Sources, model: TritonModel
) -> Iterator[Outcome]:
    inner = siblings.get(step.model_name)
    if inner is None:
        if model.is_repository:
            message = f"the repository has no model called {step.model_name}"
            yield Discrepancy(step.location, message, given=step.model_name, relation="exists")
        else:
            yield Unknown(step.location, f"the config of the step's model {step.model_name} was not given")
        return
    inputs = {tensor.name: tensor for tensor in inner.inputs}
    yield from _check_missing_inputs(step, inner)
    for entry in step.input_map:
        if inputs and entry.key not in inputs:
            message = f"{step.model_name} has no input {entry.key}, only {_join(inputs)}"
            yield Discrepancy(entry.location, message, given=entry.key, relation="declared")
        elif entry.value in sources:
            if entry.key in inputs:
                yield from _check_pair((inner, inputs[entry.key]), sources[entry.value])
        elif not _is_from_unknown(model, entry.value, siblings):
            message = f"nothing produces {entry.value}, which {step.model_name} takes as {entry.key}"
            yield Discrepancy(entry.location, message, given=entry.value, relation="produced")
    for entry in step.output_map:
        names = [tensor.name for tensor in inner.outputs]
        if names and entry.key not in names:
            message = f"{step.model_name} has no output {entry.key}, only {_join(names)}"
            yield Discrepancy(entry.location, message, given=entry.key, relation="declared")


def _check_missing_inputs(step: EnsembleStep, inner: TritonModel) -> Iterator[Outcome]:
    mapped = {entry.key for entry in step.input_map}
    for tensor in inner.inputs:
        if tensor.name not in mapped and not tensor.optional:
            message = f"the step does not map the input {tensor.name} of {step.model_name}"
            yield Discrepancy(step.location, message, given=tensor.name, relation="mapped")


def _check_pair(
    consumer: tuple[TritonModel, TritonTensor], producer: tuple[TritonModel, TritonTensor]
) -> Iterator[Outcome]:
    """Type and shape on both sides of one edge; the batch dimension counts, a -1 goes with everything."""
    (to_model, to), (from_model, source) = consumer, producer
    if to.data_type and source.data_type and to.data_type != source.data_type:
        message = f"{to.name} is {to.data_type} here and {source.data_type} in {from_model.name or 'the ensemble'}"
        yield Discrepancy(to.location, message, given=to.data_type, compiled=source.data_type, relation="==")
    wanted, given = _full_shape(to_model, to), _full_shape(from_model, source)
    fits = len(wanted) == len(given) and all(
        -1 in pair or pair[0] == pair[1] for pair in zip(wanted, given, strict=True)
    )
    if to.dims and source.dims and not fits:
        message = f"{to.name} has shape {list(wanted)} here and {list(given)} in {from_model.name or 'the ensemble'}"
        yield Discrepancy(to.location, message, given=list(wanted), compiled=list(given), relation="==")


def _full_shape(model: TritonModel, tensor: TritonTensor) -> tuple[int, ...]:
    return (-1, *tensor.dims) if model.max_batch_size else tensor.dims


def _is_logits(tensor: TritonTensor) -> bool:
    """Whether the tensor is called logits or nothing in particular; embeddings and scores have names of their own."""
    return tensor.data_type in _FLOATS and _LOGITS.fullmatch(tensor.name) is not None


def _is_named_for_generation(model: TritonModel) -> bool:
    """Whether the model or its file is called after a family of causal language models."""
    names = (model.name or "", model.default_model_filename or "", PurePath(model.directory).name)
    return _FAMILIES.search(" ".join(names)) is not None


def _check_logits(model: TritonModel, context: Context) -> Iterator[Outcome]:
    """A causal language model gives one row of logits per token: [batch, tokens, vocabulary]."""
    if not any(tensor.name == "input_ids" for tensor in model.inputs):
        return
    vocab_size = context.facts.vocab_size if context.facts is not None else None
    for tensor in model.outputs:
        shape = _full_shape(model, tensor)
        if not _is_logits(tensor) or (len(shape) == 3 and shape[-1] in {-1, vocab_size or shape[-1]}):
            continue
        if context.facts is None and not _is_named_for_generation(model):
            yield Unknown(tensor.location, f"whether {tensor.name} holds a language model's logits; {NO_ARTIFACT}")
            continue
        wanted: list[JsonValue] = [-1, -1, vocab_size or -1]
        yield Discrepancy(
            tensor.location,
            f"a causal language model gives logits of shape {wanted}; {list(shape)} is that of a classifier",
            given=list(shape),
            compiled=wanted,
            relation="==",
            severity="error" if context.facts is not None else "warning",
        )
