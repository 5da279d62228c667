"""Exact arithmetic: what was asked for is what was counted."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families

from llmpack.server.options import ServerOptions
from tests.server.conftest import Start

NUM_REQUESTS, NUM_PROMPT, NUM_OUTPUT = 7, 3, 5


def samples(client: httpx.Client) -> dict[str, float]:
    """Sample name -> sum over its labels; samples of one finish reason under name[reason]."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            reason = sample.labels.get("finished_reason") or sample.labels.get("reason")
            for name in (sample.name, f"{sample.name}[{reason}]"):
                found[name] = found.get(name, 0) + sample.value
    return found


def generate(client: httpx.Client) -> None:
    body = {"model": "m", "prompt": "ab go", "max_tokens": NUM_OUTPUT, "temperature": 0}
    for _ in range(NUM_REQUESTS):
        usage = client.post("/v1/completions", json=body).json()["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (NUM_PROMPT, NUM_OUTPUT)


def test_tokens_and_latencies_are_counted_exactly(start: Start) -> None:
    client = start().client
    generate(client)
    counted = samples(client)
    for prefix in ("llmpack:", "vllm:"):
        assert counted[prefix + "prompt_tokens_total"] == NUM_REQUESTS * NUM_PROMPT
        assert counted[prefix + "generation_tokens_total"] == NUM_REQUESTS * NUM_OUTPUT
        assert counted[prefix + "request_success_total"] == NUM_REQUESTS
        assert counted[prefix + "request_success_total[length]"] == NUM_REQUESTS
        assert counted[prefix + "time_to_first_token_seconds_count"] == NUM_REQUESTS
        assert counted[prefix + "inter_token_latency_seconds_count"] == NUM_REQUESTS * (NUM_OUTPUT - 1)
        assert counted[prefix + "e2e_request_latency_seconds_count"] == NUM_REQUESTS
        assert counted[prefix + "request_prompt_tokens_sum"] == NUM_REQUESTS * NUM_PROMPT
        assert counted[prefix + "request_generation_tokens_sum"] == NUM_REQUESTS * NUM_OUTPUT
        for gauge in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
            assert counted[prefix + gauge] == 0


def test_reused_prompt_tokens_are_counted_and_reported(start: Start) -> None:
    client = start().client
    prompt = " ".join(["ab"] * 70)
    body = {"model": "m", "prompt": prompt, "max_tokens": 2, "ignore_eos": True, "temperature": 0}
    usages = [client.post("/v1/completions", json=body).json()["usage"] for _ in range(2)]
    num_prompt = usages[0]["prompt_tokens"]
    assert [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages] == [0, 192]
    assert num_prompt in range(192, 256)
    counted = samples(client)
    for prefix in ("llmpack:", "vllm:"):
        assert counted[prefix + "prefix_cache_queries_total"] == 2 * num_prompt
        assert counted[prefix + "prefix_cache_hits_total"] == 192


def test_a_stream_reports_reused_prompt_tokens(start: Start) -> None:
    client = start().client
    body = {"model": "m", "prompt": " ".join(["ab"] * 70), "max_tokens": 2, "n": 2, "stream": True}
    body["stream_options"] = {"include_usage": True}
    for num_cached in (0, 192):
        answer = client.post("/v1/completions", json=body).text
        assert f'"prompt_tokens_details":{{"cached_tokens":{num_cached}}}' in answer


def test_http_answers_are_counted_by_route_pattern(start: Start) -> None:
    client = start().client
    generate(client)
    client.get("/v1/models/m")
    client.get("/v1/models/other")
    client.get("/a/path/of/no/route")
    client.post("/v1/completions", content=b"[")
    text = client.get("/metrics").text
    for labels, count in (
        ('handler="/v1/completions",method="POST",status="200"', NUM_REQUESTS),
        ('handler="/v1/completions",method="POST",status="400"', 1),
        ('handler="/v1/models/{model:path}",method="GET",status="200"', 1),
        ('handler="/v1/models/{model:path}",method="GET",status="404"', 1),
        ('handler="unmatched",method="GET",status="404"', 1),
    ):
        assert f"http_requests_total{{{labels}}} {count}.0" in text
    assert 'http_request_duration_seconds_count{handler="/v1/completions",method="POST"} 8.0' in text


def test_the_names_of_vllm_can_be_left_out(start: Start) -> None:
    client = start(ServerOptions(port=0, vllm_metrics=False)).client
    text = client.get("/metrics").text
    assert "llmpack:num_requests_running" in text
    assert "vllm:" not in text


def test_openmetrics_when_asked_for(client: httpx.Client) -> None:
    plain = client.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    asked = client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert asked.headers["content-type"].startswith("application/openmetrics-text")
    assert asked.text.endswith("# EOF\n")
