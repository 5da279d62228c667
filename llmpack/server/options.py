"""How a server is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmpack.errors import UsageError

API_KEY_VARIABLE = "LLMPACK_API_KEY"


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Settings of the HTTP side; the engine has its own.

    Attributes:
        host: Address to listen on.
        port: 0 takes a free one.
        api_keys: Any of them opens the server; empty leaves it open.
        allowed_origins: For browsers on other sites (CORS); "*" allows all. None are allowed by default, which also
            keeps a local server safe from DNS rebinding.
        max_body_bytes: Longer request bodies are answered 413.
        shutdown_timeout_s: How long running requests may go on after SIGTERM.
        keep_alive_timeout_s: Idle connections are closed after this; longer than what proxies and pooled clients use.
        comment_interval_s: A stream that has been silent this long gets a `: keep-alive` comment.
        vllm_metrics: Publish every `llmpack:*` sample as `vllm:*` too.
        protect_metrics: Ask for a key on /metrics.
        default_model: Serve requests that name no model instead of refusing them.
        max_prompts: Prompts in one completions request.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    max_body_bytes: int = 32 * 1024 * 1024
    shutdown_timeout_s: float = 30.0
    keep_alive_timeout_s: int = 90
    comment_interval_s: float = 15.0
    vllm_metrics: bool = True
    protect_metrics: bool = False
    default_model: bool = False
    max_prompts: int = 1024

    def __post_init__(self) -> None:
        """Refuses keys that would open the server to everybody."""
        if not all(key.strip() for key in self.api_keys):
            raise UsageError("an API key is empty", where="--api-key", next_step="Set a key or leave the option out.")


def read_api_keys(given: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """The keys given as options, or else those in LLMPACK_API_KEY, separated by commas."""
    listed = given or environment.get(API_KEY_VARIABLE, "").split(",")
    return tuple(key.strip() for key in listed if key.strip())
