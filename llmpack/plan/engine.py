"""Which engine and dtype a compile is for, given the machine that compiles."""

from __future__ import annotations

import os
import shutil

from llmpack.artifact.manifest import DtypeName, EngineName
from llmpack.artifact.requirements import read_cpu_features
from llmpack.errors import PlanError
from llmpack.plan.options import CompileOptions

# Inductor's code for these CPUs, and the kernel of ours that it uses (`graph/inductor`), are written for AVX-512.
INDUCTOR_CPU_FEATURES = ("fma", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512_vnni")
BFLOAT16_CPU_FEATURE = "avx512_bf16"


def choose_engine(options: CompileOptions) -> EngineName:
    """Returns the engine that was asked for; for `auto`, inductor where this machine can compile for it.

    Raises:
        PlanError: There is no such engine, or this machine cannot compile for it.
    """
    if options.engine == "onnxruntime":
        return "onnxruntime"
    if options.engine == "inductor":
        _check_inductor()
        return "inductor"
    if options.engine == "auto":
        return "onnxruntime" if find_obstacles() else "inductor"
    allowed = "onnxruntime, inductor or auto"
    raise PlanError("unknown engine", where="--engine", given=options.engine, allowed=allowed)


def find_obstacles() -> list[str]:
    """Returns what keeps this machine from compiling for inductor, a sentence each."""
    compiler = os.environ.get("CXX", "g++")
    obstacles = [] if shutil.which(compiler) else [f"there is no C++ compiler ({compiler})"]
    present = read_cpu_features()
    return obstacles + [f"this CPU lacks {name}" for name in INDUCTOR_CPU_FEATURES if name not in present]


def required_cpu_features(engine: EngineName) -> list[str]:
    """Returns what a machine must have to run programs that are compiled on this one, sorted."""
    if engine == "onnxruntime":
        return []
    present = read_cpu_features()
    return sorted({*INDUCTOR_CPU_FEATURES, *({BFLOAT16_CPU_FEATURE} & present)})


def choose_dtype(options: CompileOptions, engine: EngineName, stored: str) -> DtypeName:
    """Returns the dtype of weights and cache.

    Args:
        options: What was asked for.
        engine: Chosen before.
        stored: Dtype of the checkpoint's tensors.

    Raises:
        PlanError: The engine cannot compute in it here.
    """
    possible = _possible_dtypes(engine)
    if options.dtype == "auto":
        return "bfloat16" if stored == "bfloat16" and "bfloat16" in possible else "float32"
    for name in possible:
        if options.dtype == name:
            return name
    reason = "" if engine == "onnxruntime" else f" on a CPU without {BFLOAT16_CPU_FEATURE}"
    raise PlanError(
        f"the {engine} engine cannot compute in this dtype{reason if options.dtype == 'bfloat16' else ''}",
        where="--dtype",
        given=options.dtype,
        allowed=f"{', '.join(possible)} or auto",
    )


def _possible_dtypes(engine: EngineName) -> tuple[DtypeName, ...]:
    """ONNX Runtime's CPU provider has no bfloat16 matrix product (1.32)."""
    if engine == "inductor" and BFLOAT16_CPU_FEATURE in read_cpu_features():
        return ("float32", "bfloat16")
    return ("float32",)


def _check_inductor() -> None:
    obstacles = find_obstacles()
    if obstacles:
        raise PlanError(
            f"this machine cannot compile for the inductor engine: {'; '.join(obstacles)}",
            where="--engine",
            given="inductor",
            allowed="onnxruntime",
            next_step="Install g++ (Debian: apt install g++) or set CXX, or compile with --engine onnxruntime.",
        )
