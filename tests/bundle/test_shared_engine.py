"""Instances as real processes: one of them holds the engine, whatever they do."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.scripted import SCRIPT, write_tokenizer

ENDLESS = {"max_tokens": 480, "ignore_eos": True}
TIMEOUT_S = 30


class Instance:
    """A process of `instance_process`."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        command = [sys.executable, "-m", "tests.bundle.instance_process", str(directory), name]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._told: queue.Queue[dict[str, Any]] = queue.Queue()
        self._kept: list[dict[str, Any]] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._told.put(json.loads(line))

    def order(self, **command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def ask(self, number: int, text: str = " go", **sampling: Any) -> None:
        self.order(ask=number, text=text, sampling=sampling)

    def wait(self, key: str, value: Any = None) -> dict[str, Any]:
        """The first fact with that key (and value) that was not returned yet."""
        for fact in self._kept:
            if key in fact and value in {None, fact[key]}:
                self._kept.remove(fact)
                return fact
        while True:
            fact = self._told.get(timeout=TIMEOUT_S)
            if key in fact and (value is None or fact[key] == value):
                return fact
            self._kept.append(fact)

    @property
    def has_loaded(self) -> bool:
        return any("loaded" in fact for fact in self._kept)

    def metric(self, name: str) -> float:
        self.order(metrics=True)
        value: float = self.wait("metrics")["metrics"].get(name, 0.0)
        return value

    def close(self) -> dict[str, Any]:
        self.order(close=True)
        fact = self.wait("closed")
        assert self.process.wait(TIMEOUT_S) == 0
        return fact

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reading.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


Start = Callable[..., list[Instance]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts instances at once; returns them when they are ready, the one that holds the engine first."""
    write_tokenizer(tmp_path)
    with contextlib.ExitStack() as stack:

        def begin(*names: str) -> list[Instance]:
            instances = [Instance(tmp_path, name) for name in names]
            for instance in instances:
                stack.callback(instance.end)
            for instance in instances:
                instance.wait("ready")
            return sorted(instances, key=lambda instance: not instance.has_loaded)

        yield begin


def test_one_of_three_loads_and_all_share_its_batch(start: Start) -> None:
    host, *guests = start("m_0", "m_1", "m_2")
    assert [instance.has_loaded for instance in (host, *guests)] == [True, False, False]
    for number, instance in enumerate((host, *guests)):
        instance.ask(number, **ENDLESS)
    for number, instance in enumerate((host, *guests)):
        instance.wait("first", number)
    wait_for(lambda: host.metric("llmpack:num_requests_running") == 3)
    assert host.metric("llmpack:num_instances") == 3
    for number, instance in enumerate((host, *guests)):
        fact = instance.wait("ended", number)
        assert fact["error"] is None
        assert fact["num_responses"] > 3


def wait_for(is_true: Callable[[], bool]) -> None:
    for _ in range(200):
        if is_true():
            return
        threading.Event().wait(0.05)
    raise AssertionError("it never became true")


def test_a_guest_answers_as_the_host_does(start: Start) -> None:
    host, guest = start("m_0", "m_1")
    for instance in (host, guest):
        instance.ask(1, n=2)
        instance.ask(2, top_p=7)
    facts = [[instance.wait("ended", number) for number in (1, 2)] for instance in (host, guest)]
    assert facts[0][0]["texts"] == facts[1][0]["texts"] == [SCRIPT, SCRIPT]
    assert facts[0][1] == facts[1][1]
    code, message = facts[1][1]["error"]
    assert code == "invalid"
    assert "top_p must be a number in its range" in message


def test_a_guests_cancelled_request_frees_its_slot(start: Start) -> None:
    host, guest = start("m_0", "m_1")
    for number in range(6):  # more than there are slots
        guest.ask(number, **ENDLESS)
    guest.wait("first", 0)
    for number in range(6):
        guest.order(cancel=number)
    for number in range(6):
        assert guest.wait("ended", number)["error"] == ["cancelled", "Request was cancelled"]
    wait_for(lambda: host.metric("llmpack:num_requests_running") == 0)
    guest.ask(7)
    assert guest.wait("ended", 7)["texts"] == [SCRIPT]


@pytest.mark.parametrize("first", [0, 1])
def test_instances_end_in_any_order(start: Start, first: int) -> None:
    instances = start("m_0", "m_1")
    instances[1].ask(1)
    instances[1].wait("ended", 1)
    for instance in (instances[first], instances[1 - first]):
        fact = instance.close()
        assert fact["errors"] == []
        assert not [name for name in fact["threads"] if name.startswith("llmpack")]
    assert fact["socket"].startswith("@llmpack-triton-")
    assert fact["socket"] not in Path("/proc/net/unix").read_text(encoding="utf-8")


def test_a_host_that_ends_lets_running_requests_finish(start: Start) -> None:
    host, guest = start("m_0", "m_1")
    guest.ask(1, max_tokens=100, ignore_eos=True)
    guest.wait("first", 1)
    host.close()
    assert guest.wait("ended", 1)["error"] is None


def test_a_killed_host_is_told_and_the_next_request_loads_anew(start: Start) -> None:
    host, *guests = start("m_0", "m_1", "m_2")
    for guest in guests:
        guest.ask(1, **ENDLESS)
    for guest in guests:
        guest.wait("first", 1)
    host.end()
    for guest in guests:
        code, message = guest.wait("ended", 1)["error"]
        assert code == "unavailable"
        assert message == "the instance that held the engine ended. Send the request again."
    for guest in guests:
        guest.ask(2)
    assert [guest.wait("ended", 2)["texts"] for guest in guests] == [[SCRIPT], [SCRIPT]]
    assert [guest.has_loaded for guest in guests].count(True) == 1
    (again,) = start(host.name)
    assert not again.has_loaded


def test_a_killed_guest_frees_its_slots_and_comes_back(start: Start) -> None:
    host, guest = start("m_0", "m_1")
    guest.ask(1, **ENDLESS)
    guest.wait("first", 1)
    wait_for(lambda: host.metric("llmpack:num_requests_running") == 1)
    guest.end()
    wait_for(lambda: host.metric("llmpack:num_requests_running") == 0)
    (again,) = start(guest.name)
    assert not again.has_loaded
    again.ask(1)
    assert again.wait("ended", 1)["texts"] == [SCRIPT]


def test_another_load_of_the_model_has_an_engine_of_its_own(start: Start) -> None:
    old_host, old_guest = start("m_0", "m_1")
    new_host, new_guest = start("m_0", "m_1")
    assert [new_host.has_loaded, new_guest.has_loaded] == [True, False]
    for instance in (old_guest, old_host):
        instance.close()
    new_guest.ask(1)
    assert new_guest.wait("ended", 1)["texts"] == [SCRIPT]


def test_a_model_that_cannot_be_loaded_is_refused_by_every_instance(tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    instances = [Instance(tmp_path, name) for name in ("m_0", "m_1")]
    try:
        for instance in instances:
            assert instance.wait("refused")["refused"] == "the artifact is altered"
    finally:
        for instance in instances:
            instance.end()


def test_nothing_is_left_in_the_temporary_directory(start: Start, tmp_path: Path) -> None:
    before = set(os.listdir(tmp_path))
    for instance in start("m_0", "m_1"):
        instance.close()
    assert set(os.listdir(tmp_path)) == before
