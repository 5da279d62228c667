"""Writes a plan's programs into the artifact, whichever engine they are for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llmpack.artifact.library_program import LibraryProgram, encode_program
from llmpack.artifact.manifest import Program
from llmpack.artifact.weights_file import WEIGHTS_PATH, StoredTensor
from llmpack.compiler.manifest import describe_program
from llmpack.compiler.progress import CompileProgress
from llmpack.plan.plan import CompilePlan


@dataclass(frozen=True, slots=True)
class ProgramInputs:
    """What programs are written from.

    Attributes:
        path: The artifact; `programs/` exists in it.
        plan: What to write.
        tied: The head reads the embedding.
        stored: Every tensor of the weights file.
    """

    path: Path
    plan: CompilePlan
    tied: bool
    stored: Mapping[str, StoredTensor]


def write_programs(inputs: ProgramInputs, progress: CompileProgress) -> tuple[Program, ...]:
    """Writes every program for the plan's engine; returns their manifest entries in the plan's order.

    Raises:
        CompileError: Inductor or the C++ compiler failed.
    """
    return (_write_libraries if inputs.plan.engine == "inductor" else _write_onnx)(inputs, progress)


def _write_onnx(inputs: ProgramInputs, progress: CompileProgress) -> tuple[Program, ...]:
    """Writes one ONNX model for each program."""
    from llmpack.graph.export import Exporter, write_program
    from llmpack.graph.signature import build_signature

    plan = inputs.plan
    progress.start("exporting programs", len(plan.programs), "programs")
    exporter = Exporter(plan, tied=inputs.tied, stored=inputs.stored, weights_path=WEIGHTS_PATH)
    entries = []
    for program in plan.programs:
        entries.append(describe_program(program, build_signature(plan, program), suffix="onnx"))
        write_program(exporter.build(program), inputs.path / entries[-1].path)
        progress.advance(1)
    return tuple(entries)


def _write_libraries(inputs: ProgramInputs, progress: CompileProgress) -> tuple[Program, ...]:
    """Writes one native library for each part that programs share, and one file for each program that calls them."""
    from llmpack.graph.inductor import lower_parts
    from llmpack.graph.inductor.parts import list_parts
    from llmpack.graph.inductor.program import build_program, build_signature, library_path

    plan = inputs.plan
    progress.start("compiling libraries", len(list_parts(plan, tied=inputs.tied)), "libraries")
    lowered = lower_parts.lower_all(plan, tied=inputs.tied, advance=progress.advance)
    for name, part in lowered.items():
        (inputs.path / library_path(name)).write_bytes(part.library)
    constants = {name: part.constants for name, part in lowered.items()}
    entries = []
    for program in plan.programs:
        entries.append(describe_program(program, build_signature(plan, program), suffix="json"))
        calls = build_program(plan, program, constants)
        _check_stored(calls, inputs.stored)
        (inputs.path / entries[-1].path).write_bytes(encode_program(calls))
    return tuple(entries)


def _check_stored(program: LibraryProgram, stored: Mapping[str, StoredTensor]) -> None:
    for call in filter(None, (program.embed, *program.blocks, program.head)):
        assert stored.keys() >= set(call.constants.values()), f"{call.library} wants what is not stored"
