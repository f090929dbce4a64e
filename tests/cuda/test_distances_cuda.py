"""The CUDA twin of squared distances: the bodies of the CPU."""

from tests.kernels.test_distances import (  # noqa: F401
    test_near_points_far_from_the_origin,
    test_reverse_rule,
    test_squared_distances,
)
