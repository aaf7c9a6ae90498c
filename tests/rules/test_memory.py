"""Freed memory stays with the process."""

import subprocess
import sys

import pytest

COUNT = """
import resource, torch
from robustbench_dec import memory
{call}
Z = torch.ones(2**24)
for _ in range(20):  # until what is free has the sizes that are asked for
    Z + Z
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    Z + Z
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(call: str) -> int:
    """Pages that the system had to provide for five results of 64 MB."""
    done = subprocess.run([sys.executable, "-c", COUNT.format(call=call)], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it is the GNU C library that is asked for it")
def test_large_results_take_the_memory_of_those_before_them() -> None:
    assert faults("memory.keep_freed()") < 1000 < faults("")
