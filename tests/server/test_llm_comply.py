"""The compliance tester `llm-comply`, which nobody here wrote: its score is a contract."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from pathlib import Path

import httpx

PASSING = {
    "chat-basic-response",
    "chat-system-prompt",
    "chat-multi-turn",
    "chat-streaming-response",
    "chat-streaming-usage",
    "chat-error-handling",
}
OUT_OF_SCOPE = {"chat-tool-calling", "chat-image-input", "chat-reasoning-summary"}


def test_openai_chat_passes_all_but_tools_images_and_reasoning(base_url: str) -> None:
    model = httpx.get(base_url + "/v1/models").json()["data"][0]["id"]
    program = Path(sysconfig.get_path("scripts")) / "llm-comply"
    command = [str(program), "--format", "openai-chat", "-u", base_url + "/v1", "-k", "none", "-m", model, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    results = {result["id"]: result for result in json.loads(done.stdout)["results"]}
    assert set(results) == PASSING | OUT_OF_SCOPE
    assert {name for name, result in results.items() if result["status"] == "passed"} == PASSING
    assert not [result for name, result in results.items() if name in PASSING and result.get("warnings")]
