"""Real servers on free ports, over a runner that works on paper or over a compiled artifact."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from llmpack.runtime.async_engine import AsyncEngine
from llmpack.runtime.tokenizer import Tokenizer
from llmpack.server.options import ServerOptions
from llmpack.server.run import GracefulServer
from tests.e2e.serving import compile_artifact, serving
from tests.server.background import background_load
from tests.server.scripted import NAME, build_engine, build_model, write_tokenizer
from tests.server.scripted_checkpoint import write_checkpoint

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.server)


@dataclass
class Running:
    """A server that answers."""

    url: str
    engine: AsyncEngine
    server: GracefulServer
    client: httpx.Client

    def gauge(self, name: str) -> float:
        """The sum of a metric's samples."""
        lines = self.client.get("/metrics").text.splitlines()
        values = [line.rsplit(" ", 1)[1] for line in lines if line.startswith((name + "{", name + " "))]
        return sum(map(float, values))


@contextlib.contextmanager
def running(engine: AsyncEngine, model: object, options: ServerOptions | None = None) -> Iterator[Running]:
    """Runs a server in a thread of its own until the block ends."""
    options = options or ServerOptions(port=0)
    server = GracefulServer(engine, model, options)  # type: ignore[arg-type]
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        with httpx.Client(base_url=url, timeout=30) as client:
            yield Running(url, engine, server, client)
    finally:
        engine.shutdown(0.0)
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def scripted_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("scripted")
    write_tokenizer(directory)
    return directory


@pytest.fixture(scope="session")
def scripted_tokenizer(scripted_directory: Path) -> Tokenizer:
    return Tokenizer.from_directory(scripted_directory)


@pytest.fixture(scope="session")
def shared_server(scripted_directory: Path, scripted_tokenizer: Tokenizer) -> Iterator[Running]:
    """One server for all tests that leave nothing behind."""
    model = build_model(scripted_directory, scripted_tokenizer)
    with running(build_engine(scripted_tokenizer), model) as server:
        yield server


@pytest.fixture
def client(shared_server: Running) -> httpx.Client:
    return shared_server.client


@dataclass(frozen=True)
class Setup:
    """A server to run cases against.

    Attributes:
        batch_size: Compiled slots; None for the runner on paper, in this process.
        loaded: Whether other clients ask it things all the time.
    """

    batch_size: int | None = None
    loaded: bool = False


def _compiled(batch_size: int, *, loaded: bool = False) -> Any:
    name = f"compiled-{batch_size}" + "-loaded" * loaded
    return pytest.param(Setup(batch_size, loaded), id=name, marks=[pytest.mark.slow, pytest.mark.compile])


@pytest.fixture(
    scope="session",
    params=[pytest.param(Setup(), id="paper"), _compiled(4), _compiled(4, loaded=True), _compiled(1), _compiled(8)],
)
def setup(request: pytest.FixtureRequest) -> Setup:
    """Every case that uses it, or `base_url`, runs on paper and over artifacts of the real compiler."""
    return cast("Setup", request.param)


@pytest.fixture(scope="session")
def base_url(setup: Setup, request: pytest.FixtureRequest) -> Iterator[str]:
    """Root of a server whose greedy continuation of " go" is the script."""
    if setup.batch_size is None:
        yield request.getfixturevalue("shared_server").url
        return
    artifact = request.getfixturevalue("scripted_artifacts")(setup.batch_size)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(artifact, "--served-model-name", NAME))
        if setup.loaded:
            stack.enter_context(background_load(server.url, NAME))
        yield server.url


@pytest.fixture(scope="session")
def scripted_artifacts(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Gives the scripted checkpoint compiled for so many slots; each is compiled once."""
    checkpoint = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(checkpoint)

    @functools.cache
    def compile_for(batch_size: int) -> Path:
        options = ["--max-seq-len", "512", "--batch-size", str(batch_size), "--prefill-buckets", "16,64"]
        proof = "--proof" if batch_size == 4 else "--no-proof"
        return compile_artifact(checkpoint, tmp_path_factory.mktemp("artifact") / "scripted", *options, proof)

    return compile_for


Start = Callable[..., Running]


@pytest.fixture
def start(scripted_directory: Path, scripted_tokenizer: Tokenizer) -> Iterator[Start]:
    """Starts a server of its own: engine settings as keywords, HTTP settings in `options`."""
    with contextlib.ExitStack() as stack:

        def begin(options: ServerOptions | None = None, **engine_settings: float) -> Running:
            engine = build_engine(scripted_tokenizer, **engine_settings)  # type: ignore[arg-type]
            model = build_model(scripted_directory, scripted_tokenizer)
            return stack.enter_context(running(engine, model, options))

        yield begin
