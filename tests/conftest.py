"""What tests of several packages use: the files beside the checkout, a machine without a network."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from testing.places import GOLDEN, SHARED

hypothesis_settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("untimed")  # a busy machine fails no test


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with small real data sets; the test is skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"no shared files at {SHARED}: set ZELLIGE_SHARED")
    return SHARED


@pytest.fixture(scope="session")
def golden_folder() -> Path:
    """The folder with the numbers recorded from published code; the test is skipped where it is absent."""
    if not GOLDEN.is_dir():
        pytest.skip(f"no recorded numbers at {GOLDEN}: set ZELLIGE_GOLDEN")
    return GOLDEN


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """No test goes out, and each sees what a machine without a network sees."""
    from zellige.data import remote

    monkeypatch.setattr(remote, "_silent", {})
    monkeypatch.setattr(remote, "_ask", lambda address: "Name or service not known")
