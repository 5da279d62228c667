"""Configs per second and memory of a validation: `python -m tests.validate.bench_validate [NUMBER]`."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

from llmpack.validate.run import ValidateOptions, validate_paths
from tests.validate.foreign_artifacts import write_rbln
from tests.validate.tutorials import COMMAND, MODEL_JSON, VLLM_CONFIG, write_files


def write_configs(root: Path, number: int) -> Path:
    """An artifact and `number` configs for it: model.json, config.pbtxt, scripts; every tenth is wrong."""
    artifact = write_rbln(root / "artifact")
    for index in range(number):
        slots = "8" if index % 10 == 0 else "4"
        text = (MODEL_JSON, COMMAND, VLLM_CONFIG)[index % 3].replace("@ARTIFACT@", str(artifact))
        text = text.replace('"max_num_seqs": 4', f'"max_num_seqs": {slots}').replace("num-seqs 4", f"num-seqs {slots}")
        name = ("m{0}/1/model.json", "s{0}/serve.sh", "t{0}/config.pbtxt")[index % 3].format(index)
        write_files(root / "configs", {name: text})
    return artifact


def peak_bytes() -> int:
    """Peak resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(number: int) -> tuple[float, int, int]:
    """Seconds, findings and bytes of memory that the validation of `number` configs took."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        artifact = write_configs(root, number)
        before, start_s = peak_bytes(), time.perf_counter()
        report = validate_paths([root / "configs"], ValidateOptions(artifact))
        took_s = time.perf_counter() - start_s
        assert report.num_configs == number
        return took_s, len(report.findings), peak_bytes() - before


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    measure(10)
    seconds, findings, memory = measure(count)
    sys.stdout.write(f"{count} configs, {findings} findings: {seconds:.2f} s, {count / seconds:.0f}/s, ")
    sys.stdout.write(f"{memory >> 20} MiB more\n")
