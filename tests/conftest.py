"""Where the shared files are, if they are: a folder `shared` beside the checkout, or ZELLIGE_SHARED."""

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("ZELLIGE_SHARED", Path(__file__).resolve().parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with golden numbers and small real data sets; the test is skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"no shared files at {SHARED}: set ZELLIGE_SHARED")
    return SHARED


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """No test goes out, and each sees what a machine without a network sees."""
    from zellige.data import remote

    monkeypatch.setattr(remote, "_silent", {})
    monkeypatch.setattr(remote, "_ask", lambda address: "Name or service not known")
