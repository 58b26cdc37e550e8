"""The memory bound of a chain, as NumPy reports its buffers to `tracemalloc`.

Each `y = tanh(y) * w + y` must keep tanh's output; `w` and `x` belong to the caller.
Both passes may use three buffers more: forward the product, the old and the new value;
backward the gradient of `w`, the cotangent and one temporary.
"""

import pytest

from benchmarks import memory

SIZE = 400_000  # a tenth of it still goes through the blocked kernels
REPETITIONS = 16


@pytest.fixture(autouse=True)
def empty_pool():
    """The pool's memory is not left for the tests that follow."""
    yield
    memory.cpu.trim()


def test_the_chain_holds_what_its_rules_keep_and_three_buffers_more():
    traced = memory.traced_peak(REPETITIONS, SIZE, None)
    bound = memory.minimum(REPETITIONS) + memory.SPARE_BUFFERS
    assert traced.buffers <= bound + memory.RESOLUTION


def test_checkpoints_hold_boundaries_and_one_region():
    plain = memory.traced_peak(memory.REPETITIONS, SIZE, None)
    regions = memory.traced_peak(memory.REPETITIONS, SIZE, memory.REGION)
    assert regions.buffers <= memory.MOST_WITH_CHECKPOINT * plain.buffers
    # `w`, `x`, an output of each region, and one region that is run again.
    outputs = memory.REPETITIONS // memory.REGION
    inside = memory.minimum(memory.REGION) + memory.SPARE_BUFFERS
    assert regions.buffers <= 2 + outputs + inside + memory.RESOLUTION


def test_a_second_pass_takes_its_memory_from_the_pool():
    memory.ours(4, SIZE, None)
    held = memory.cpu.pool_bytes
    memory.ours(4, SIZE, None)
    assert memory.cpu.pool_bytes == held
