"""What was read from serving configs and what was found wrong in them: plain frozen values, no behaviour.

The way of the data:

    file --readers--> ServingConfig (settings, Triton model, container) --rules--> Finding --fix--> Edit
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

ConfigKind = Literal["model.json", "config.pbtxt", "command-line", "env-file", "kwargs"]
Origin = Literal["file", "shell", "dockerfile", "compose", "kubernetes", "systemd", "python", "api"]
Target = Literal[
    "llmpack", "vllm", "vllm-rbln", "triton-vllm", "triton-python", "triton-onnxruntime", "triton-ensemble", "unknown"
]
Severity = Literal["error", "warning", "note"]
DefectKind = Literal["non-ascii", "unrendered", "syntax"]


@dataclass(frozen=True, slots=True)
class Span:
    """Byte offsets in a file: start <= offset < end."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Location:
    """Where something was written.

    Attributes:
        path: File or directory, as given by the user and joined below it; None for values that came from Python.
        line: From 1; None when there is no text.
        column: From 1, in characters; None when there is no text.
        pointer: JSON pointer (`/max_num_seqs`), flag or variable as written (`--max-num-seqs`), or the path of a
            protobuf field (`input[0].dims`).
    """

    path: str | None
    line: int | None = None
    column: int | None = None
    pointer: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """One value that a server is started with.

    Attributes:
        name: Canonical, snake case: `max_num_seqs`. A positional model is `model`.
        value: JSON files and keyword arguments keep their types. Command lines and environments hold text; a flag
            without a value is True, `--no-flag` is False under the name of `flag`, and a value that is a JSON object
            or list is decoded.
        spelling: As written: `--max-num-seqs`, `max_num_seqs`, `VLLM_MAX_NUM_SEQS`.
        location: Of the value; of the key when there is no value.
        span: Of the value. In JSON and Python with its quotes; in command lines and environments without them.
            None when it cannot be replaced (no file, or put together from pieces).
        key_span: Of the key or flag, without quotes and without `=`.
        entry_span: Of the whole entry with its separator: what remains after cutting it out is well-formed.
        is_known: False when the value depends on a variable that is not set in the file.
    """

    name: str
    value: JsonValue
    spelling: str
    location: Location
    span: Span | None = None
    key_span: Span | None = None
    entry_span: Span | None = None
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class TextDefect:
    """Something wrong with the text itself, found before or while parsing it.

    Attributes:
        kind: `non-ascii` outside strings and comments where the server's parser stops at it; `unrendered` for a
            template variable; `syntax` for what the server's parser refuses though ours reads on.
        text: The offending characters, or the parser's message.
        replacement: What may stand there instead, if that is certain (a space for U+00A0).
    """

    kind: DefectKind
    text: str
    location: Location
    span: Span | None = None
    replacement: str | None = None


@dataclass(frozen=True, slots=True)
class Secret:
    """A credential written out in a file; the value itself is never kept.

    Attributes:
        what: Such as `login(token=...)`.
        is_empty: Whether the literal is the empty string, a place that waits for a secret.
    """

    what: str
    location: Location
    is_empty: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """A name and where it stands."""

    name: str
    location: Location
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class TritonTensor:
    """One `input` or `output` of a config.pbtxt.

    Attributes:
        data_type: As written: `TYPE_STRING`; empty when absent.
        dims: As written, without the batch dimension.
    """

    name: str
    data_type: str
    dims: tuple[int, ...]
    location: Location
    allow_ragged_batch: bool = False
    optional: bool = False
    name_span: Span | None = None
    data_type_span: Span | None = None
    dims_span: Span | None = None


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """One `instance_group`; `count` is None when absent, `kind` is `KIND_AUTO` then.

    Attributes:
        kind_span: Of the word `KIND_GPU`.
    """

    kind: str
    count: int | None
    gpus: tuple[int, ...]
    location: Location
    kind_span: Span | None = None


@dataclass(frozen=True, slots=True)
class DynamicBatching:
    """The `dynamic_batching` block.

    Attributes:
        entry_span: Of the whole block.
    """

    preferred_batch_size: tuple[int, ...]
    max_queue_delay_microseconds: int | None
    location: Location
    entry_span: Span | None = None


@dataclass(frozen=True, slots=True)
class MapEntry:
    """`key` is the step's tensor, `value` the ensemble's."""

    key: str
    value: str
    location: Location


@dataclass(frozen=True, slots=True)
class EnsembleStep:
    """One `step` of `ensemble_scheduling`."""

    model_name: str
    model_version: int
    input_map: tuple[MapEntry, ...]
    output_map: tuple[MapEntry, ...]
    location: Location


@dataclass(frozen=True, slots=True)
class ModelPy:
    """What the syntax tree of a model.py says; the file is never run.

    Attributes:
        path: As in `Location.path`.
        reads: Literal names given to `get_input_tensor_by_name`.
        writes: Literal names given to `pb_utils.Tensor`.
        writes_are_complete: False when a tensor's name is computed, so that more may be written.
        finalize_location: Of a `finalize` that takes anything but `self`; Triton calls it without arguments.
        secrets: Literal credentials.
    """

    path: str
    reads: tuple[Named, ...] = ()
    writes: tuple[Named, ...] = ()
    reads_are_complete: bool = True
    writes_are_complete: bool = True
    finalize_location: Location | None = None
    secrets: tuple[Secret, ...] = ()


@dataclass(frozen=True, slots=True)
class TritonModel:
    """One model of a Triton repository: its config.pbtxt and what lies beside it.

    Attributes:
        name: The `name` field; None when absent (the server takes the directory's).
        directory: The model's directory; its last part is what the server compares the name with.
        backend: The `backend` field, else empty.
        platform: The `platform` field, else empty.
        max_batch_size: None when absent, which the server reads as 0.
        decoupled: `model_transaction_policy.decoupled`; None when absent.
        version_dirs: Numeric sub-directories that exist, as written.
        version_files: Files of each version directory, relative to the model's directory (`1/model.py`).
        is_repository: Whether the file lies in a model directory at all: False for a config.pbtxt given alone,
            beside which nothing can be expected.
        locations: Of fields by protobuf path: `name`, `max_batch_size`, `backend`, `platform`.
        spans: Of the values of the same fields.
        parameters: `parameters { key value { string_value } }`.
    """

    name: str | None
    directory: str
    backend: str
    platform: str
    max_batch_size: int | None
    location: Location
    inputs: tuple[TritonTensor, ...] = ()
    outputs: tuple[TritonTensor, ...] = ()
    instance_groups: tuple[InstanceGroup, ...] = ()
    dynamic_batching: DynamicBatching | None = None
    decoupled: bool | None = None
    decoupled_location: Location | None = None
    default_model_filename: str | None = None
    ensemble_steps: tuple[EnsembleStep, ...] = ()
    parameters: tuple[Setting, ...] = ()
    version_dirs: tuple[str, ...] = ()
    version_files: tuple[str, ...] = ()
    is_repository: bool = True
    model_py: ModelPy | None = None
    locations: dict[str, Location] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Port:
    """A published port; `host` is None when the daemon chooses."""

    host: int | None
    container: int
    location: Location


@dataclass(frozen=True, slots=True)
class Container:
    """How a container around the server is started (docker run, compose, Kubernetes, FROM of a Dockerfile).

    Attributes:
        image: Such as `nvcr.io/nvidia/tritonserver:24.01-py3`, or None when unknown.
        shm_size: As written (`1g`), or None when absent. Kubernetes: the size of a memory-backed emptyDir on
            /dev/shm, or `unlimited`.
        is_host_ipc: The host's /dev/shm is shared.
        ulimits: Names and values as written.
        starts_container: False for a Dockerfile, which cannot say how the container is started.
    """

    image: str | None
    location: Location
    image_location: Location | None = None
    shm_size: str | None = None
    shm_location: Location | None = None
    is_host_ipc: bool = False
    ulimits: tuple[tuple[str, str], ...] = ()
    ports: tuple[Port, ...] = ()
    starts_container: bool = True


@dataclass(frozen=True, slots=True)
class ServingConfig:
    """What one server, or one model of a server, is started with.

    Attributes:
        kind: How it was written.
        origin: In what it was written.
        path: The file; None for keyword arguments from Python.
        target: Which engine reads it, from what the config says: a `device` of rbln or a `compiled_model_dir` means
            vllm-rbln, `llmpack serve` means llmpack.
        location: Of the command or the file's first line.
        settings: All occurrences in order, duplicates included.
        environment: Variables set beside a command, named as written.
        triton: The model of a config.pbtxt; for a model.json, the model that it belongs to, if it lies in one.
        siblings: All models of the same repository, this one included.
        container: What a command runs in, if that is said.
        secrets: Credentials in the file that are not settings.
        defects: Of the text.
        is_containerised: Paths name the file system of a container, not this machine's.
        engine_release: Version of the target that the file pins (`vllm==0.6.3`, an image tag), else None.
    """

    kind: ConfigKind
    origin: Origin
    path: str | None
    target: Target
    location: Location
    settings: tuple[Setting, ...] = ()
    environment: tuple[Setting, ...] = ()
    triton: TritonModel | None = None
    siblings: tuple[TritonModel, ...] = ()
    container: Container | None = None
    secrets: tuple[Secret, ...] = ()
    defects: tuple[TextDefect, ...] = ()
    is_containerised: bool = False
    engine_release: str | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces the bytes of `path` from `start` to before `end` by `replacement`, encoded as UTF-8."""

    path: str
    start: int
    end: int
    replacement: str


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits that belong together: all are made or none."""

    description: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """One disagreement.

    Attributes:
        rule_id: Stable: `LP101`.
        severity: `note` does not fail a run.
        location: Of the offending value.
        given: As written.
        compiled: What the artifact, the engine or the server asks for; None when the relation says it all.
        relation: Between the two, in words or as an operator: `==`.
        message: One sentence without a full stop.
        fix: Edits that cure it and are safe, or None.
    """

    rule_id: str
    severity: Severity
    location: Location
    given: JsonValue
    compiled: JsonValue
    relation: str
    message: str
    fix: Fix | None = None


@dataclass(frozen=True, slots=True)
class ReadFailure:
    """A file that cannot be read, and why; the other files are checked all the same."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class ReadResult:
    """All that was read below some paths, in the order of the paths."""

    configs: tuple[ServingConfig, ...] = ()
    failures: tuple[ReadFailure, ...] = ()
