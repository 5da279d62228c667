"""What every route needs: the engine, the model, the options, and whether the server is still open."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from llmpack.errors import RequestError
from llmpack.runtime.async_engine import AsyncEngine
from llmpack.runtime.request import SequenceOutput
from llmpack.server.errors import ApiError
from llmpack.server.options import ServerOptions
from llmpack.server.served_model import ServedModel


@dataclass
class Lifecycle:
    """Whether the server is open for new work.

    Attributes:
        is_draining: A stop was asked for; running requests may finish, new ones are refused.
    """

    is_draining: bool = False


@dataclass(frozen=True)
class ServerContext:
    """Everything that the routes share."""

    engine: AsyncEngine
    model: ServedModel
    options: ServerOptions
    lifecycle: Lifecycle = field(default_factory=Lifecycle)

    @property
    def is_ready(self) -> bool:
        """Whether a request sent now would be served."""
        return self.engine.is_running and not self.engine.errored and not self.lifecycle.is_draining

    def check_open(self) -> None:
        """Returns if the server takes new work.

        Raises:
            ApiError: 503 while draining.
        """
        if self.lifecycle.is_draining:
            raise _shutting_down()

    def check_size(self, num_sequences: int) -> None:
        """Returns if so many sequences could ever be live at once; cheaper than building them to find out.

        Raises:
            RequestError: They could not.
        """
        most = self.engine.engine.rules.max_live
        if num_sequences > most:
            raise RequestError(
                "prompts times `n` is more than this server ever holds",
                param="n",
                given=num_sequences,
                allowed=f"at most {most}",
            )

    def check_output(self, output: SequenceOutput) -> None:
        """Lets every output pass but an abort: OpenAI has no finish reason for an answer that was cut off.

        Raises:
            ApiError: 400 when the request allows no token, 503 while draining, else 500.
        """
        if output.error is not None:
            raise _failed(output.error, output.error_param)
        if output.finish_reason == "abort":
            raise _shutting_down() if self.lifecycle.is_draining else _failed("The request was aborted.", None)

    def resolve_model(self, name: str | None) -> str:
        """The served name that the request means.

        Raises:
            ApiError: 400 without a name, 404 for one that is not served.
        """
        if name is None and self.options.default_model:
            return self.model.names[0]
        if name is None:
            raise ApiError(400, f"`model` is required; served: {', '.join(self.model.names)}.", param="model")
        return self.model.check_name(name)


def context_of(request: Request) -> ServerContext:
    """The context that `create_app` put into the application."""
    return cast("ServerContext", request.app.state.context)


def json_response(content: bytes, status: int = 200) -> Response:
    """A JSON answer from encoded bytes."""
    return Response(content, status, media_type="application/json")


def _shutting_down() -> ApiError:
    return ApiError(503, "The server is shutting down.", code="server_shutting_down", headers={"Retry-After": "1"})


def _failed(reason: str, param: str | None) -> ApiError:
    return ApiError(500 if param is None else 400, reason, param=param, code="generation_failed")
