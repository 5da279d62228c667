"""A config.pbtxt and what lies beside it, as a `TritonModel`.

Source: `model_config.proto` of Triton's common repository, release 26.09; the repository layout of Triton's
"Model Repository" page.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from llmpack.errors import UnreadableConfig
from llmpack.validate.model import (
    DynamicBatching,
    EnsembleStep,
    InstanceGroup,
    Location,
    MapEntry,
    ModelPy,
    Setting,
    Span,
    Target,
    TextDefect,
    TritonModel,
    TritonTensor,
)
from llmpack.validate.readers.model_py import read_model_py
from llmpack.validate.readers.pbtxt_text import PbField, parse_pbtxt
from llmpack.validate.readers.source_text import SourceText
from llmpack.validate.readers.triton_schema import find_syntax_error

MAX_VERSION_FILES = 1000
_TARGETS: dict[str, Target] = {"vllm": "triton-vllm", "python": "triton-python"}
_PLAIN_FIELDS = ("name", "max_batch_size", "backend", "platform", "default_model_filename")


@dataclass(frozen=True, slots=True)
class TritonFile:
    """A config.pbtxt as read.

    Attributes:
        model_py_failure: Why a model.py beside it cannot be read, or None.
    """

    model: TritonModel
    defects: tuple[TextDefect, ...]
    model_py_failure: tuple[str, str] | None = None


def read_triton_config(source: SourceText, *, is_repository: bool) -> TritonFile:
    """The model that the text configures. The directory is looked at, none of its code is run.

    Raises:
        UnreadableConfig: Not protobuf text.
    """
    parsed = parse_pbtxt(source)
    defects = parsed.defects + _syntax_defects(source, parsed.plain, parsed.defects)
    directory = Path(source.path or ".").parent
    version_dirs = _version_dirs(directory)
    model_py, failure = _find_model_py(directory, version_dirs)
    model = _Reader(source, parsed.root).model(directory, version_dirs, model_py, is_repository)
    return TritonFile(model, defects, failure)


def resolve_triton_target(model: TritonModel) -> Target:
    """Which backend runs the model."""
    if model.ensemble_steps or model.platform == "ensemble":
        return "triton-ensemble"
    if model.backend == "onnxruntime" or model.platform == "onnxruntime_onnx":
        return "triton-onnxruntime"
    return _TARGETS.get(model.backend, "unknown")


def _syntax_defects(source: SourceText, plain: str, found: tuple[TextDefect, ...]) -> tuple[TextDefect, ...]:
    if any(defect.kind == "unrendered" for defect in found):
        return ()  # the parser would stop at the template variable, which is reported already
    error = find_syntax_error(plain)
    if error is None:
        return ()
    message, line, column = error
    return (TextDefect("syntax", message, Location(source.path, line, column)),)


def _version_dirs(directory: Path) -> tuple[str, ...]:
    try:
        names = [entry.name for entry in directory.iterdir() if entry.name.isdecimal() and entry.is_dir()]
    except OSError:
        return ()
    return tuple(sorted(names, key=int))


def _version_files(directory: Path, version_dirs: tuple[str, ...]) -> tuple[str, ...]:
    files: list[str] = []
    for version in version_dirs:
        files += sorted(f"{version}/{entry.name}" for entry in (directory / version).iterdir() if entry.is_file())
    return tuple(files[:MAX_VERSION_FILES])


def _find_model_py(directory: Path, version_dirs: tuple[str, ...]) -> tuple[ModelPy | None, tuple[str, str] | None]:
    """The facts of the newest version's model.py, or why it cannot be read."""
    for version in reversed(version_dirs):
        path = directory / version / "model.py"
        if path.is_file():
            try:
                return read_model_py(path), None
            except UnreadableConfig as error:
                return None, (str(path), str(error))
    return None, None


class _Reader:
    """Turns fields with places into the parts of a `TritonModel`."""

    def __init__(self, source: SourceText, root: PbField) -> None:
        self._source = source
        self._root = root

    def model(
        self, directory: Path, version_dirs: tuple[str, ...], model_py: ModelPy | None, is_repository: bool
    ) -> TritonModel:
        plain = {name: field for name in _PLAIN_FIELDS if (field := self._root.last(name))}
        decoupled = self._find(("model_transaction_policy", "decoupled"))
        name = plain.get("name")
        return TritonModel(
            name=name.scalar if name else None,
            directory=str(directory),
            backend=_text(plain.get("backend")),
            platform=_text(plain.get("platform")),
            max_batch_size=_integer(plain.get("max_batch_size")),
            location=self._source.location(self._root.fields[0].name_start if self._root.fields else 0),
            inputs=self._tensors("input"),
            outputs=self._tensors("output"),
            instance_groups=self._instance_groups(),
            dynamic_batching=self._dynamic_batching(),
            decoupled=_boolean(decoupled),
            decoupled_location=self._place(decoupled, "model_transaction_policy.decoupled") if decoupled else None,
            default_model_filename=_text(plain.get("default_model_filename")) or None,
            ensemble_steps=self._ensemble_steps(),
            parameters=self._parameters(),
            version_dirs=version_dirs,
            version_files=_version_files(directory, version_dirs),
            is_repository=is_repository,
            model_py=model_py,
            locations={key: self._place(field, key) for key, field in plain.items()},
            spans={key: span for key, field in plain.items() if (span := self._span(field))},
        )

    def _find(self, names: tuple[str, ...]) -> PbField | None:
        field: PbField | None = self._root
        for name in names:
            field = field.last(name) if field else None
        return field

    def _place(self, field: PbField, pointer: str) -> Location:
        return self._source.location(field.start, pointer)

    def _span(self, field: PbField | None) -> Span | None:
        return self._source.span(field.start, field.end) if field else None

    def _list_span(self, fields: list[PbField]) -> Span | None:
        """The whole list with its brackets, or the only value."""
        if fields and fields[0].list_start >= 0 and fields[0].list_start == fields[-1].list_start:
            return self._source.span(fields[0].list_start, fields[0].list_end)
        return self._span(fields[0]) if len(fields) == 1 else None

    def _tensors(self, kind: str) -> tuple[TritonTensor, ...]:
        return tuple(self._tensor(field, f"{kind}[{index}]") for index, field in enumerate(self._root.all(kind)))

    def _tensor(self, field: PbField, pointer: str) -> TritonTensor:
        dims = field.all("dims")
        return TritonTensor(
            name=_text(field.last("name")),
            data_type=_text(field.last("data_type")),
            dims=_integers(dims),
            location=self._place(field, pointer),
            allow_ragged_batch=_boolean(field.last("allow_ragged_batch")) or False,
            optional=_boolean(field.last("optional")) or False,
            name_span=self._span(field.last("name")),
            data_type_span=self._span(field.last("data_type")),
            dims_span=self._list_span(dims),
        )

    def _instance_groups(self) -> tuple[InstanceGroup, ...]:
        groups = []
        for index, field in enumerate(self._root.all("instance_group")):
            kind = field.last("kind")
            place = self._place(kind or field, f"instance_group[{index}]" + (".kind" if kind else ""))
            groups.append(
                InstanceGroup(
                    kind=_text(kind) or "KIND_AUTO",
                    count=_integer(field.last("count")),
                    gpus=_integers(field.all("gpus")),
                    location=place,
                    kind_span=self._span(kind),
                )
            )
        return tuple(groups)

    def _dynamic_batching(self) -> DynamicBatching | None:
        field = self._root.last("dynamic_batching")
        if field is None:
            return None
        return DynamicBatching(
            preferred_batch_size=_integers(field.all("preferred_batch_size")),
            max_queue_delay_microseconds=_integer(field.last("max_queue_delay_microseconds")),
            location=self._place(field, "dynamic_batching"),
            entry_span=self._source.span(field.name_start, field.end),
        )

    def _ensemble_steps(self) -> tuple[EnsembleStep, ...]:
        scheduling = self._root.last("ensemble_scheduling")
        steps = scheduling.all("step") if scheduling else []
        return tuple(self._step(field, f"ensemble_scheduling.step[{index}]") for index, field in enumerate(steps))

    def _step(self, field: PbField, pointer: str) -> EnsembleStep:
        version = _integer(field.last("model_version"))
        return EnsembleStep(
            model_name=_text(field.last("model_name")),
            model_version=-1 if version is None else version,
            input_map=self._map(field, "input_map", pointer),
            output_map=self._map(field, "output_map", pointer),
            location=self._place(field, pointer),
        )

    def _map(self, step: PbField, name: str, pointer: str) -> tuple[MapEntry, ...]:
        return tuple(
            MapEntry(_text(field.last("key")), _text(field.last("value")), self._place(field, f"{pointer}.{name}[{i}]"))
            for i, field in enumerate(step.all(name))
        )

    def _parameters(self) -> tuple[Setting, ...]:
        settings = []
        for field in self._root.all("parameters"):
            key, value = _text(field.last("key")), field.last("value")
            string = value.last("string_value") if value else None
            place = self._place(string or field, f"parameters.{key}")
            settings.append(Setting(key, _text(string), key, place, self._span(string)))
        return tuple(settings)


def _text(field: PbField | None) -> str:
    return field.scalar or "" if field else ""


def _integer(field: PbField | None) -> int | None:
    if field is None or field.scalar is None or field.is_string:
        return None
    try:
        return int(field.scalar, 0)
    except ValueError:
        return None


def _integers(fields: list[PbField]) -> tuple[int, ...]:
    return tuple(value for field in fields if (value := _integer(field)) is not None)


def _boolean(field: PbField | None) -> bool | None:
    if field is None or field.scalar is None:
        return None
    return {"true": True, "True": True, "t": True, "1": True}.get(field.scalar, False)
