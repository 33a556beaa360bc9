"""benchmarks/corpus.py on 20 MB: shards, a mixture that goes on bit for bit, and memory that does not grow."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "corpus.py"


@pytest.mark.long
def test_the_measure_of_a_corpus(published, tmp_path):
    out = tmp_path / "report.json"
    options = ["--gigabytes", "0.02", "--shards", "16", "--part-mb", "2", "--rounds", "3", "--data", published]
    command = [sys.executable, SCRIPT, *options, "--folder", tmp_path / "corpus", "--json", out]
    subprocess.run([*map(str, command)], check=True)
    report = json.loads(out.read_text())
    assert report["resumed"] == {"equal": True}
    assert 15 <= report["corpus large"]["shards"] <= 17
    assert report["corpus large"]["anonymous_mb"] < report["corpus tenth"]["anonymous_mb"] + 300
    assert report["opened large again"]["anonymous_mb"] < report["opened tenth again"]["anonymous_mb"] + 50
    assert report["speed"]["processor"]["ratio"] > 0.5  # of parts of 2 MB; studies/speed has that of a corpus
    assert not (tmp_path / "corpus").exists()
