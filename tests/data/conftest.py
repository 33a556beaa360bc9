import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Every test has its own cache folder (it does not exist yet)."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("ZELLIGE_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def published(shared):
    """The folder with local copies of published files."""
    return shared / "data"
