"""The fuzzer (`make fuzz`), for some seconds with a fixed seed: wrong calls."""

import random

from fuzz import calls
from fuzz.world import World


def test_wrong_calls_are_one_line(tmp_path):
    world = World(tmp_path.resolve() / "box")
    for number in range(100):
        calls.trial(world, random.Random(f"test {number}"))
