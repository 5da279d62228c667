"""Validation needs neither a compiler nor a runtime."""

from __future__ import annotations

import subprocess
import sys


def test_no_module_of_validate_loads_anything_heavy() -> None:
    code = (
        "import importlib, pkgutil, sys, llmpack.validate as package\n"
        "for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "    importlib.import_module(module.name)\n"
        "heavy = ('torch', 'transformers', 'onnx', 'onnxruntime', 'numpy', 'llmpack.checkpoint', 'llmpack.graph')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
