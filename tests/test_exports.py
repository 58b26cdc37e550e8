"""The root publishes what the engine offers, and nothing that does not exist."""

import tenferro_ad as ta
from tenferro_ad import engine

# Working parts of the engine that users reach through operators and protocols.
INTERNAL = {"HANDLES", "as_tensor", "dlpack_device", "host_array_of", "to_dlpack"}
INTERNAL |= {"axes_of", "axis_of", "extents", "int_of", "shape_of", "tensors"}
INTERNAL |= {"dtype_of", "numbers_of", "real_of"}
# `ta.cond`, `ta.linalg.diagonal`, `ta.trace`
INTERNAL |= {"branch", "last_diagonal", "program_of"}


def test_every_engine_name_is_published() -> None:
    published = set(ta.__all__) | set(ta.linalg.__all__)
    assert set(engine.__all__) - INTERNAL <= published
    assert INTERNAL & set(ta.__all__) == set()


def test_every_published_name_exists_once() -> None:
    assert len(ta.__all__) == len(set(ta.__all__))
    assert [name for name in ta.__all__ if not hasattr(ta, name)] == []
