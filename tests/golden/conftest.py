"""What the tests against recorded numbers share; a file whose cases are of another folder has a `golden` of its own."""

import pytest


@pytest.fixture(scope="session")
def golden():
    from .recorded import TORCH  # where nothing is recorded the tests are skipped, and this is not asked

    return TORCH


@pytest.fixture(scope="session")
def network(golden):
    """MDLM's published network, which others are tested on, too."""
    from .recorded import published_network

    return published_network(golden["mdlm__weights"])
