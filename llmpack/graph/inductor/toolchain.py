"""The instruction set that native libraries are compiled for."""

from __future__ import annotations

from llmpack.artifact.requirements import read_cpu_features
from llmpack.plan.engine import BFLOAT16_CPU_FEATURE


def choose_march() -> str:
    """Returns GCC's name for the instruction set that `required_cpu_features` asks for.

    Both are AVX-512 F, BW, CD, DQ, VL and VNNI; the second adds BF16. (GCC 12 manual, x86 options.)
    """
    return "cooperlake" if BFLOAT16_CPU_FEATURE in read_cpu_features() else "cascadelake"
