"""The fuzzer (`make fuzz`), for some seconds with a fixed seed: command lines and calls."""

import random

import pytest

from fuzz import calls, commands
from fuzz.world import World


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("fuzz").resolve() / "box")


@pytest.mark.parametrize("family", [commands, calls], ids=["commands", "calls"])
def test_wrong_input_is_one_line(family, world):
    for number in range(80):
        family.trial(world, random.Random(f"test {number}"))
