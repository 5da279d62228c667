from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmpack.runtime.runner import RunnerShape
from llmpack.runtime.sampler import SamplerState
from llmpack.runtime.scheduler import Scheduler, StepPlan, choose_window
from llmpack.runtime.sequence import SequenceState
from tests.runtime.shapes import make_request, requests_for, runner_shapes

SHAPE = RunnerShape(4, 64, 97, prefill_buckets=(4, 16), decode_buckets=(1, 2, 4))


def make_sequence(name: str, prompt_len: int = 3, max_tokens: int = 4) -> SequenceState:
    return SequenceState(make_request(name, prompt_ids=(1,) * prompt_len, max_tokens=max_tokens), SHAPE)


def carry_out(scheduler: Scheduler, plan: StepPlan, shape: RunnerShape) -> list[str]:
    """What the engine does with a plan, without a model; returns the ids that finished."""
    finished = []
    for sequence in () if plan.decode is None else plan.decode.sequences:
        sequence.accept_token(5)
        if sequence.num_output_tokens >= sequence.request.max_tokens:
            scheduler.remove(sequence)
            finished.append(sequence.request_id)
    if plan.prefill is not None:
        sequence = plan.prefill.sequence
        sequence.finish_chunk()
        if plan.prefill.is_last:
            sequence.sampler_state = SamplerState(sequence.request, shape.vocab_size)
            if sequence.request.max_tokens > 0:
                sequence.accept_token(5)
            if sequence.request.max_tokens <= 1:
                scheduler.remove(sequence)
                finished.append(sequence.request_id)
    return finished


def names(plan: StepPlan) -> tuple[str | None, list[str]]:
    decode = [] if plan.decode is None else [sequence.request_id for sequence in plan.decode.sequences]
    return None if plan.prefill is None else plan.prefill.sequence.request_id, decode


@given(st.data(), runner_shapes())
def test_the_window_is_the_smallest_that_covers_all_and_stays_inside_the_cache(
    data: st.DataObject, shape: RunnerShape
) -> None:
    slots = sorted(data.draw(st.sets(st.integers(0, shape.batch_size - 1), min_size=1)))
    first_slot, bucket = choose_window(slots, shape)
    assert first_slot >= 0
    assert first_slot + bucket <= shape.batch_size
    assert first_slot <= slots[0]
    assert slots[-1] < first_slot + bucket
    assert bucket == min(size for size in shape.decode_buckets if size >= slots[-1] - slots[0] + 1)


def test_a_long_prompt_and_running_sequences_take_turns() -> None:
    scheduler = Scheduler(SHAPE, max_running=4)
    scheduler.add(make_sequence("a", max_tokens=20))
    carry_out(scheduler, scheduler.schedule(), SHAPE)
    scheduler.add(make_sequence("long", prompt_len=40))
    trace = []
    for _ in range(4):
        plan = scheduler.schedule()
        trace.append(names(plan))
        carry_out(scheduler, plan, SHAPE)
    assert trace == [("long", ["a"]), ("long", ["a"]), ("long", ["a"]), (None, ["a", "long"])]


def test_prompts_are_prefilled_in_order_each_to_its_end() -> None:
    scheduler = Scheduler(SHAPE, max_running=4)
    for name, prompt_len in (("first", 33), ("second", 20), ("third", 2)):
        scheduler.add(make_sequence(name, prompt_len, max_tokens=50 - prompt_len))
    order = []
    for _ in range(6):
        plan = scheduler.schedule()
        order.append(names(plan)[0])
        carry_out(scheduler, plan, SHAPE)
    assert order == ["first", "first", "first", "second", "second", "third"]


def test_a_freed_slot_goes_to_the_one_that_waits_longest() -> None:
    scheduler = Scheduler(SHAPE, max_running=2)
    sequences = [make_sequence(name) for name in "abcd"]
    for sequence in sequences:
        scheduler.add(sequence)
    assert [sequence.request_id for sequence in scheduler.schedule().admitted] == ["a", "b"]
    assert scheduler.num_waiting == 2
    scheduler.remove(sequences[2])  # aborted while waiting
    scheduler.remove(sequences[0])
    assert [sequence.request_id for sequence in scheduler.schedule().admitted] == ["d"]
    assert sequences[3].slot == 0


def test_rows_that_do_not_run_write_behind_what_is_cached() -> None:
    scheduler = Scheduler(SHAPE, max_running=4)
    first, second, third = (make_sequence(name, max_tokens=20) for name in "abc")
    for sequence in (first, second, third):
        scheduler.add(sequence)
        carry_out(scheduler, scheduler.schedule(), SHAPE)
    scheduler.remove(second)
    long = make_sequence("long", prompt_len=40)
    scheduler.add(long)
    carry_out(scheduler, scheduler.schedule(), SHAPE)
    plan = scheduler.schedule()
    assert (first.slot, long.slot, third.slot) == (0, 1, 2)
    assert plan.decode is not None
    assert plan.decode.sequences == (first, third)
    assert list(plan.decode.batch.token_ids) == [5, 0, 5, 0]
    assert list(plan.decode.batch.lengths) == [first.num_cached, 16, third.num_cached, 0]


@given(st.data(), runner_shapes())
def test_slots_are_never_shared_every_sequence_finishes_and_admission_is_in_order(
    data: st.DataObject, shape: RunnerShape
) -> None:
    max_running = data.draw(st.integers(1, shape.batch_size))
    scheduler = Scheduler(shape, max_running)
    num_sequences = data.draw(st.integers(1, 8))
    sequences = [
        SequenceState(data.draw(requests_for(shape, request_id=f"r{index}")), shape) for index in range(num_sequences)
    ]
    arrivals = sequences.copy()
    finished: list[str] = []
    admitted: list[str] = []
    num_steps = 0
    while arrivals or scheduler.num_waiting or scheduler.num_running:
        for _ in range(data.draw(st.integers(0 if scheduler.num_running else 1, 3))):
            if arrivals:
                scheduler.add(arrivals.pop(0))
        plan = scheduler.schedule()
        admitted += [sequence.request_id for sequence in plan.admitted]
        held = [sequence.slot for sequence in sequences if sequence.slot is not None]
        assert len(held) == len(set(held)) == scheduler.num_running <= max_running
        assert all(slot < max_running for slot in held)
        decoding = [sequence for sequence in sequences if sequence.slot is not None and sequence.is_decoding]
        assert sorted(names(plan)[1]) == sorted(sequence.request_id for sequence in decoding), "nobody is left out"
        finished += carry_out(scheduler, plan, shape)
        num_steps += 1
        assert num_steps < 1000
    assert sorted(finished) == sorted(sequence.request_id for sequence in sequences)
    assert admitted == [sequence.request_id for sequence in sequences]


@given(st.data(), runner_shapes())
def test_the_chunks_of_a_prompt_do_not_depend_on_load(data: st.DataObject, shape: RunnerShape) -> None:
    def chunks_of(request_id: str, num_neighbours: int) -> list[tuple[int, int, int]]:
        scheduler = Scheduler(shape, shape.batch_size, reuses_prefixes=False)
        for index in range(num_neighbours):
            scheduler.add(SequenceState(make_request(f"n{index}", (1,), max_tokens=1), shape))
        scheduler.add(SequenceState(request, shape))
        chunks = []
        while scheduler.num_waiting or scheduler.num_running:
            plan = scheduler.schedule()
            if plan.prefill is not None and plan.prefill.sequence.request_id == request_id:
                chunk = plan.prefill.chunk
                chunks.append((chunk.start, len(chunk.token_ids), chunk.bucket))
            carry_out(scheduler, plan, shape)
        return chunks

    request = data.draw(requests_for(shape, request_id="me"))
    assert chunks_of("me", num_neighbours=0) == chunks_of("me", num_neighbours=data.draw(st.integers(1, 6)))
