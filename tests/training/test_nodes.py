"""Several nodes: the run of one process, whoever computes it; what is sharded goes on elsewhere; a lost process, a job that ends.

The quick tests have processes with the environment that torchrun gives them; the long ones torchrun itself, two of them, and the
Slurm script with stand-ins for srun and scontrol.
"""

import json
import math
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from training.test_resume import ACCUMULATE, STEPS, TERM, Moment, assert_same, curve, run, saved_step, server  # noqa: F401
from zellige import Sample, Train
from zellige.base.errors import InputError
from zellige.base.processes import Place, this_process
from zellige.cli import main
from zellige.models.checkpoint.layout import SHARDS
from zellige.models.checkpoint.shards import load_shards, save_shards
from zellige.models.config import Config
from zellige.sampling.sample import share
from zellige.training import device

SLURM_SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "slurm.sh"
OURS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_JOB_ID", "SLURM_STEP_NUM_TASKS")
SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NUM_NODES": "2",
}
TORCHRUN = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}


@pytest.fixture
def environment(monkeypatch):
    for name in OURS:
        monkeypatch.delenv(name, raising=False)
    return lambda values: [monkeypatch.setenv(*item) for item in values.items()]


# ------------------------------------------------------------------------------------------------- who started what
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, Place()),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, Place(rank=1, local=1)),  # Lightning started it
        (TORCHRUN, Place("torchrun", 5, 1, 8, 2)),
        (SLURM, Place("Slurm", 5, 1, 8, 2)),
        (
            SLURM | TORCHRUN | {"WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "2"},
            Place("torchrun", 5, 1, 6, 3),
        ),  # srun torchrun
        ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, Place("Slurm")),  # the script itself
    ],
)
def test_place(values, expected, environment):
    environment(values)
    assert this_process() == expected


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ({}, {"nodes": 2, "devices": 8},
         "`train.nodes` is 2, but only this process was started; on each node: torchrun --nnodes 2 --nproc-per-node 8 "
         "--rdzv-backend c10d --rdzv-endpoint HOST:29500 -m -- zellige train ..."),
        (TORCHRUN, {"nodes": 3},
         "`train.nodes` is 3, but torchrun started 4 processes on 2 nodes; leave it out, or start as many"),
        (SLURM, {"devices": 8},
         "`train.devices` is 8, but Slurm started 4 processes on 2 nodes; leave it out, or start as many"),
        (TORCHRUN | {"WORLD_SIZE": "7"}, {},
         "torchrun started 7 processes, not as many on each node; give all the same --nproc-per-node"),
        (SLURM | {"SLURM_STEP_NUM_TASKS": "7"}, {},
         "Slurm started 7 processes, not as many on each node; give all the same --ntasks-per-node"),
        (TORCHRUN | {"RANK": "8"}, {},
         "RANK is 8 of WORLD_SIZE 8 in the environment; it must be below, as torchrun sets it"),
        (TORCHRUN, {"batch": 20},
         "`train.batch` 20 does not split into 8 equal parts (2 nodes x 4 devices x 1 accumulated); use 16 or 24"),
        ({}, {"nodes": 0}, "`train.nodes` is 0; it must be 1 or more"),
        ({}, {"strategy": "dpp"}, "`train.strategy` is 'dpp'; it must be auto, ddp, fsdp or hybrid"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_line(values, options, message, environment):
    environment(values)
    with pytest.raises(InputError) as refused:
        split(options)
    assert str(refused.value) == message


def split(options: dict) -> None:
    config = Config("mdlm", None, train=Train(device="cpu", **options))
    device.split_batch(config.train, device.fleet(config))


def test_each_process_says_its_own_error_and_the_first_one_alone_the_rest(environment, capsys):
    environment(TORCHRUN)
    assert main(["train", "mdlm", "--train.nodes", "3"]) == 2
    assert capsys.readouterr().err.startswith(
        "error: rank 5: --train.nodes is 3, but torchrun started 4 processes on 2 nodes;"
    )


def test_a_launcher_begins_a_run_with_resume(tmp_path, environment, monkeypatch, capsys):
    """The same command is started again after a failure: it may name a size, too, and goes on in the second place."""
    monkeypatch.chdir(tmp_path)
    first, again = ([*BEGINS.split(), "--train.steps", steps] for steps in "23")
    environment({})
    assert main(first) == 2
    assert "--size and --resume both choose the network" in capsys.readouterr().err
    environment({"SLURM_JOB_ID": "7"})
    assert main(first) == 0
    assert main(again) == 0
    assert "resumed at step 2 of 3" in capsys.readouterr().err


BEGINS = (
    "train mdlm --data.name sudoku --run a --size tiny --resume --net.layers 1 --net.hidden 16 --net.heads 2 --train.batch 4 "
    "--train.validate-rows 4 --train.samples 0 --train.device cpu --no-train.tensorboard"
)


# ------------------------------------------------------------------------------------------------- the numbers
@pytest.mark.long
def test_two_nodes_compute_the_run_of_one_process_and_their_shards_go_on_anywhere(server, tmp_path):  # noqa: F811
    """hybrid, two nodes of two: the losses of one process to 1e-6. Stopped there, it goes on on two processes and on one."""
    one, four = tmp_path / "one", tmp_path / "four"
    how = {"steps": 4, "validate_every": 4, "samples": 0}
    run(server, one, **how, accumulate=4)
    ended = run(server, four, Moment("loss", 3, TERM, (2,)), world=4, nodes=2, strategy="hybrid", **how)
    assert ended[0]["end"] == "exit 143", ended
    assert saved_step(four) == 3
    last = four / "checkpoints" / "last"
    assert len(list(last.glob(SHARDS))) == 4
    assert not list(last.glob("*.metadata"))
    for name, more in {"two": {"world": 2, "strategy": "fsdp", "accumulate": 2}, "alone": {"accumulate": 4}}.items():
        folder = tmp_path / name
        shutil.copytree(four, folder, symlinks=True)
        ended = run(server, folder, resume=True, **how, **more)
        assert ended[0]["end"] == "finished", ended
        assert any("same numbers as unbroken, up to rounding" in note for note in ended[0]["notes"])
        close(curve(folder), curve(one))
        ours, theirs = (load_shards(run / "checkpoints" / "last") for run in (folder, one))
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            torch.testing.assert_close(ours[key], value, rtol=0, atol=1e-5)


SHAPES = {"a": (3, 5), "b": (7,), "c": (1, 2), "d": (8, 4)}  # over four processes, of which some hold nothing


def _tensors() -> dict[str, torch.Tensor]:
    return {name: torch.arange(math.prod(shape)).reshape(shape) / 7 for name, shape in SHAPES.items()}


def _shards(rank: int, world: int, port: int, folder: Path) -> None:
    """Four save the tensors in shards, all read them; a file `equal-WORLD-RANK` says that each part is what it should be."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    parts = {name: distribute_tensor(t, mesh, [Shard(0)]) for name, t in _tensors().items()}
    if world == 4:
        save_shards(parts, None if rank else folder)
    back = load_shards(folder, {name: torch.zeros_like(part) for name, part in parts.items()})
    if all(torch.equal(back[name].to_local(), part.to_local()) for name, part in parts.items()):
        (folder / f"equal-{world}-{rank}").touch()


def test_what_four_processes_save_two_read_and_one(server, tmp_path):  # noqa: F811
    """Bit for bit, where the tensors do not divide into as many parts as well."""
    for world in (4, 2):
        port = free_port()
        started = [server.Process(target=_shards, args=(rank, world, port, tmp_path)) for rank in range(world)]
        for process in started:
            process.start()
        for process in started:
            process.join(60)
        assert len(list(tmp_path.glob(f"equal-{world}-*"))) == world
    back = load_shards(tmp_path)
    assert back.keys() == SHAPES.keys()
    assert all(torch.equal(back[name], t) for name, t in _tensors().items())


def close(ours: list[list[str]], theirs: list[list[str]]) -> None:
    assert [row[:3] for row in ours] == [row[:3] for row in theirs]
    for a, b in zip(ours, theirs):
        assert [float(x) for x in a[3:] if x] == pytest.approx([float(x) for x in b[3:] if x], abs=1e-6)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_each_text_is_drawn_by_one_process():
    """The shares of three processes are the texts of one, each with its number and its class."""
    for classes in ((), ("x", "y")):
        request = Sample(count=4, seed=9, classes=classes or None)
        shares = [share(Place(rank=rank, world=3), request) for rank in range(3)]
        seeds = sorted(pair for each in shares for pair in each.seed)
        assert seeds == [(9, n) for n in range(4 * max(len(classes), 1))]
        for each in shares:
            assert each.classes == ([classes[n // 4] for _, n in each.seed] if classes else None)
            assert each.count * len(each.classes or [0]) == len(each.seed)
    assert share(Place(rank=2, world=3), Sample(count=2, seed=9)) is None


@pytest.mark.parametrize("classes", [None, ("x", "y")])
def test_each_text_has_the_prompt_that_it_has_in_one_process(classes):
    request = Sample(count=6, seed=9, prompt=["a", "b", "cd"], classes=classes)
    total = 6 * len(classes or "x")
    whole = request.prompts(total)
    for rank in range(4):
        own = share(Place(rank=rank, world=4), request)
        assert own is not None
        assert own.prompts(len(own.seed)) == [whole[n] for n in range(rank, total, 4)]
    assert share(Place(rank=1, world=2), replace(request, prompt="a")).prompt == "a"


# ------------------------------------------------------------------------------------------------- Slurm
def stand_in(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(("code", "again"), [(0, ""), (1, ""), (138, "requeue 4242\n"), (143, "")])
def test_the_slurm_script_queues_itself_again_where_its_time_was_up(code, again, tmp_path):
    stand_in(tmp_path, "srun", f'echo "$@" > {tmp_path}/asked; exit {code}')
    stand_in(tmp_path, "scontrol", f'echo "$@" >> {tmp_path}/scontrol.log')
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "4242"}
    ended = subprocess.run(["bash", str(SLURM_SCRIPT), "mdlm", "--run", "runs/a b"], env=environment)
    assert ended.returncode == code
    assert (tmp_path / "asked").read_text() == "zellige train mdlm --run runs/a b --resume\n"
    log = tmp_path / "scontrol.log"
    assert (log.read_text() if log.exists() else "") == again


# ------------------------------------------------------------------------------------------------- torchrun itself
SCRIPT = """
import copy, json, os, pathlib, sys, torch
torch.set_num_threads(1)
sys.path.insert(0, {tests!r})
from training.test_resume import Fragile, Moment, Net, settings, tokens
from zellige import Data, Train
from zellige.training.train import train

how, folder = json.loads(sys.argv[1]), pathlib.Path({folder!r}) / sys.argv[2]
rank = os.environ.get("RANK", "0")

class Seen(Fragile):
    name = "seen"
    def loss(self, batch, generator=None):  # its rows, and the noise of each, of a copy of what draws it
        noise = copy.copy(generator).uniform(batch.tokens.shape, None)
        with open(folder.with_suffix("." + rank), "a") as file:
            for row, of in zip(batch.tokens.tolist(), noise.tolist()):
                print(json.dumps([int(generator.step), row, of]), file=file)
        return super().loss(batch, generator)

if how.pop("kill", False) and not folder.with_suffix(".killed").exists():
    if rank == "1":
        folder.with_suffix(".killed").touch()
        Fragile.moment, Fragile.calls = Moment("loss", 6, 9, (1,)), []
net = Net(layers=1, hidden=16, heads=2, length=8, conv=3, dropout=0.0)
train(Seen, data=Data.of(tokens(), vocabulary=7), net=net, run=folder, resume=bool(os.environ.get("RANK")),
      train=settings(**how))
"""


def torchrun(tmp_path: Path, name: str, nodes: int, each: int, *more: str, **how) -> list[int]:
    """Launch on so many nodes, all of them here (0: without torchrun); how each launcher ended."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parents[1]), folder=str(tmp_path)))
    words = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        str(nodes),
        "--nproc-per-node",
        str(each),
        *more,
    ]
    words += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    words = [*(words if nodes else [sys.executable]), str(script), json.dumps(how), name]
    own = {
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"
    }  # else PyTorch's restarted processes find the addresses of those before
    started = [subprocess.Popen(words, env=clean() | own, cwd=tmp_path) for _ in range(max(nodes, 1))]
    try:
        return [process.wait(900) for process in started]
    finally:
        for process in started:
            process.kill()


def clean() -> dict[str, str]:
    """The environment, without what launchers say."""
    return {k: v for k, v in os.environ.items() if k not in OURS} | {"OMP_NUM_THREADS": "1"}


def seen(tmp_path: Path, name: str) -> list[str]:
    """The rows and the noise that all processes of a run had, with the step: in one order."""
    files = [file for file in tmp_path.glob(f"{name}.*") if file.suffix != ".killed"]
    return sorted(line for file in files for line in file.read_text().splitlines())


@pytest.mark.long
def test_two_launchers_of_two_processes_make_the_run_of_one(tmp_path):
    """torchrun --nnodes 2: each row with its noise in the same step, and the loss of each step to 1e-6."""
    how = {"batch": 8, "accumulate": 1, "samples": 0}
    assert torchrun(tmp_path, "one", 0, 1, **how) == [0]
    assert torchrun(tmp_path, "four", 2, 2, **how) == [0, 0]
    assert len(list(tmp_path.glob("four.?"))) == 4
    assert len(seen(tmp_path, "one")) >= 8 * STEPS
    assert set(seen(tmp_path, "four")) == set(seen(tmp_path, "one"))
    close(curve(tmp_path / "four"), curve(tmp_path / "one"))


@pytest.mark.long
@pytest.mark.parametrize(("strategy", "nodes"), [("ddp", 1), ("fsdp", 1), ("ddp", 2), ("hybrid", 2)])
def test_a_lost_process_loses_nothing(strategy, nodes, tmp_path):
    """kill -9 of one in its sixth step: torchrun starts all of them again, and what is written is that of an unbroken run.

    Of four processes up to rounding: which of two nodes comes first is not the same each time, and so not how gloo adds.
    """
    how = {"accumulate": 1, "strategy": strategy} | ({"batch": 8} if nodes > 1 else {})
    assert torchrun(tmp_path, "whole", nodes, 2, **how) == [0] * nodes
    assert torchrun(tmp_path, "broken", nodes, 2, "--max-restarts", "1", **how, kill=True) == [0] * nodes
    assert (tmp_path / "broken.killed").exists()
    assert "resumed at step" in (tmp_path / "broken" / "log.txt").read_text()
    if nodes == 1:
        assert_same(tmp_path / "broken", tmp_path / "whole")
    assert set(seen(tmp_path, "broken")) == set(seen(tmp_path, "whole"))
    close(curve(tmp_path / "broken"), curve(tmp_path / "whole"))


# srun: two tasks with what it tells them; it ends with the highest code
SRUN = """
export SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1 SLURM_NTASKS=2 SLURM_NTASKS_PER_NODE=2 SLURM_NNODES=1 SLURM_NODEID=0
export SLURM_NODELIST=127.0.0.1
for rank in 0 1; do
    SLURM_PROCID=$rank SLURM_LOCALID=$rank "$@" &
    echo $! >> "$TASKS"
done
code=0
for task in $(jobs -p); do
    wait $task; ended=$?
    [ $ended -gt $code ] && code=$ended
done
exit $code
"""


@pytest.mark.long
def test_a_slurm_job_that_is_warned_goes_on_in_the_next_one(tmp_path):
    """SIGUSR1 as Slurm sends it: saved, queued again; the script once more ends it, with the curve of an unbroken run."""
    (tmp_path / "text.txt").write_text("".join(f"line {i} of {i * 7919 % 1000} words\n" for i in range(400)))
    stand_in(tmp_path, "srun", SRUN)
    stand_in(tmp_path, "scontrol", f'echo "$@" >> {tmp_path}/scontrol.log')
    stand_in(tmp_path, "zellige", f'exec {sys.executable} -m zellige "$@"')
    environment = clean() | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": str(free_port()), "TASKS": str(tmp_path / "tasks"),
    }  # fmt: skip

    def job(run: str) -> subprocess.Popen:
        (tmp_path / "tasks").unlink(missing_ok=True)
        words = ["bash", str(SLURM_SCRIPT), *JOB.split(), "--run", run]
        return subprocess.Popen(words, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True)

    unbroken = job("whole")
    said = unbroken.communicate(timeout=300)[1]
    assert unbroken.returncode == 0, said
    first = job("run")
    deadline = time.monotonic() + 120
    while not (tmp_path / "run" / "metrics.csv").is_file() or len(curve(tmp_path / "run")) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for task in (tmp_path / "tasks").read_text().split():
        os.kill(int(task), signal.SIGUSR1)
    said = first.communicate(timeout=120)[1]
    assert first.returncode == 138, said
    assert "stopped and saved at step" in said
    assert (tmp_path / "scontrol.log").read_text() == f"requeue {environment['SLURM_JOB_ID']}\n"
    assert 3 <= saved_step(tmp_path / "run") < 200
    second = job("run")
    said = second.communicate(timeout=300)[1]
    assert second.returncode == 0, said
    assert "resumed at step" in said
    assert curve(tmp_path / "run") == curve(tmp_path / "whole")


JOB = (
    "mdlm --data.path text.txt --net.layers 1 --net.hidden 16 --net.heads 2 --net.length 16 --net.conv 3 --train.batch 4 "
    "--train.steps 200 --train.validate-every 100 --train.validate-rows 4 --train.samples 0 --train.log-every 1 "
    "--train.device cpu --no-train.tensorboard"
)


@pytest.mark.long
def test_two_processes_draw_what_one_does(tmp_path):
    """zellige sample under torchrun: the same file, written by the first, which alone speaks."""
    launchers = {"one": [sys.executable, "-m"]}
    launchers["two"] = [*launchers["one"], "torch.distributed.run", "--nproc-per-node", "2", "-m", "--"]
    for name, words in launchers.items():
        words += f"zellige sample mnist --count 5 --steps 4 --seed 3 --out {name}.jsonl".split()
        ended = subprocess.run(words, cwd=tmp_path, env=clean(), stderr=subprocess.PIPE, text=True)
        assert ended.returncode == 0, ended.stderr
        assert ended.stderr.count("written ") == 1
    assert (tmp_path / "two.jsonl").read_text() == (tmp_path / "one.jsonl").read_text()
