"""Mixing matrices for tests of everything that gossips."""

import numpy as np
from hypothesis import strategies as st

from robustbench_dec.networks import topology

DIRECTED = np.array([[0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5], [0.5, 0, 0, 0.5]])
"""Doubly stochastic, not symmetric: i hears i + 1 and not the other way round."""

usual_graphs = st.builds(
    topology.build,
    st.sampled_from(["ring", "path", "star", "complete", "exponential"]),
    st.integers(1, 9),
    st.just("metropolis"),
)
