"""Kernels compile where nothing can be written, too."""

import numpy as np
import pytest

compilation = pytest.importorskip("recipe.alignment.compilation", reason="numba is not installed", exc_type=ImportError)


def test_a_kernel_without_a_place_for_its_cache_still_compiles() -> None:
    namespace: dict[str, object] = {}
    exec("def fill(out):\n    out[0] = 7.0", namespace)  # no source file, hence no cache folder
    out = np.zeros(1)
    compilation.compiled(namespace["fill"])(out)
    assert out[0] == 7.0
