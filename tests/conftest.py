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
