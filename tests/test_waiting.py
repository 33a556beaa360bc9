"""How threads wait is settled before PyTorch is there, by how busy the machine is, and never against who uses it."""

import os
import subprocess
import sys

import pytest
import torch

from zellige.base import processes

PRESSURE = "some avg10={} avg60=0.00 avg300=0.00 total=5\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
IDLE, BUSY = {"GOMP_SPINCOUNT": "10000"}, {"OMP_WAIT_POLICY": "passive"}


def settled(**environ: str) -> dict[str, str]:
    processes.settle_waiting(environ)
    return environ


def test_by_what_waits_for_a_core(tmp_path, monkeypatch):
    file = tmp_path / "cpu"
    monkeypatch.setattr(processes, "PRESSURE", file)
    for share, expected in (("0.00", IDLE), ("9.99", IDLE), ("10.00", BUSY), ("89.85", BUSY)):
        file.write_text(PRESSURE.format(share))
        assert settled() == expected


@pytest.mark.parametrize("content", [None, "", "full avg60=1", "some avg10=x avg60=1"])
def test_by_the_load_where_that_is_not_known(content, tmp_path, monkeypatch):
    file = tmp_path / "cpu"
    monkeypatch.setattr(processes, "PRESSURE", file)
    if content is not None:
        file.write_text(content)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    for load, expected in ((0.0, IDLE), (3.9, IDLE), (4.0, BUSY), (9.0, BUSY)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert settled() == expected

    def absent():
        raise OSError

    monkeypatch.setattr(os, "getloadavg", absent)
    assert settled() == IDLE


@pytest.mark.parametrize("name", processes.CHOSEN)
def test_who_has_chosen_is_not_overruled(name, monkeypatch):
    for busy in (False, True):
        monkeypatch.setattr(processes, "busy", lambda busy=busy: busy)
        assert settled(**{name: "0"}) == {name: "0"}


def test_the_command_settles_it_before_torch_is_imported():
    """Whatever imports PyTorch first finds the environment as it is to be: afterwards a change has no effect."""
    script = """
import os, sys, zellige.__main__ as entry
from zellige.base import processes
def main():
    print("torch" in sys.modules, *(name for name in processes.CHOSEN if name in os.environ))
entry._main = main
entry.main()
"""
    environ = {name: value for name, value in os.environ.items() if name not in processes.CHOSEN}
    done = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout in ("False GOMP_SPINCOUNT\n", "False OMP_WAIT_POLICY\n")


def test_one_thread_where_the_work_is_small(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before, asked = torch.get_num_threads(), []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    with processes.threads_for(1e8):
        assert asked == [1]
    assert asked == [1, before]
    monkeypatch.setattr(processes, "SMALL", 1e7)
    with processes.threads_for(1e8):
        assert asked == [1, before]
    monkeypatch.setattr(processes, "SMALL", 1e9)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    asked.clear()
    with processes.threads_for(1e8):
        assert asked == []
