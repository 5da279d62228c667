"""Importing llmpack and asking for help load nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "onnx", "onnxruntime", "onnxscript", "numpy", "rich", "starlette", "tokenizers")
REPORT = f"import sys; print([name for name in {HEAVY!r} if name in sys.modules])"


def loaded_after(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", f"{code}\n{REPORT}"], capture_output=True, text=True, check=True)
    return run.stdout.splitlines()[-1]


def test_import_llmpack_is_light() -> None:
    assert loaded_after("import llmpack") == "[]"


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["inspect", "--help"], ["compile", "--help"], ["bench", "--help"]]
)
def test_help_is_light(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        f"sys.argv = ['llmpack', *{arguments!r}]\n"
        "from llmpack.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit as done:\n    assert not done.code, done.code"
    )
    assert loaded_after(code) == "[]"


def test_serving_code_does_not_know_the_compiler() -> None:
    code = (
        "import pkgutil, importlib, llmpack.artifact, llmpack.runtime, llmpack.server\n"
        "for package in (llmpack.artifact, llmpack.runtime, llmpack.server):\n"
        "    for module in pkgutil.iter_modules(package.__path__, package.__name__ + '.'):\n"
        "        if module.name != 'llmpack.runtime.inductor_runner':\n"
        "            importlib.import_module(module.name)\n"
        "import sys\n"
        "compilers = ('torch', 'transformers', 'onnx', 'onnxscript', 'llmpack.checkpoint', 'llmpack.graph')\n"
        "assert not [name for name in compilers if name in sys.modules]"
    )
    loaded_after(code)


@pytest.mark.compile
def test_serving_libraries_needs_torch_but_not_its_compiler() -> None:
    code = (
        "import sys, llmpack.runtime.inductor_runner\n"
        "compilers = ('torch._inductor.compile_fx', 'transformers', 'onnx', 'onnxruntime', 'llmpack.graph')\n"
        "assert not [name for name in compilers if name in sys.modules]"
    )
    loaded_after(code)


def test_help_is_quick() -> None:
    """Processor time beyond the bare interpreter's, which a busy machine does not stretch."""

    def best_s(*arguments: str) -> float:
        times = []
        for _ in range(3):
            before = os.times()
            subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
            after = os.times()
            times.append(after.children_user + after.children_system - before.children_user - before.children_system)
        return min(times)

    assert best_s("-m", "llmpack", "--help") - best_s("-c", "pass") < 0.3


def test_every_public_name_resolves() -> None:
    code = "import llmpack\nfor name in llmpack.__all__: getattr(llmpack, name)"
    loaded_after(code)


def test_unknown_name_is_an_attribute_error() -> None:
    import llmpack

    with pytest.raises(AttributeError, match="no_such_name"):
        _ = llmpack.no_such_name  # type: ignore[attr-defined]
