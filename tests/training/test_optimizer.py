"""Muon and AdamW: each weight has one optimizer, the first step is theirs, and a resumed run is the unbroken one."""

import shutil
from dataclasses import replace

import pytest
import torch

import zellige
from zellige import Data, Net, Train
from zellige.base.errors import InputError
from zellige.methods import METHODS, build
from zellige.models.config import Adapter, Config
from zellige.training.device import fleet
from zellige.training.optimizer import make_optimizer

V = 7
NETS = {
    "dit": Net(layers=2, hidden=12, heads=2, length=16, conv=3, classes=3, condition=8),
    "conv": Net(kind="conv", layers=2, hidden=12, heads=2, length=16),
    "u-vit": Net(kind="u-vit", layers=2, hidden=12, heads=2, length=16, grid=(4, 4), channels=4, condition=8),
    "unet": Net(kind="unet", channels=4, multipliers=(1, 2), length=16, grid=(4, 4), condition=8),
}


def config(net: Net, **train) -> Config:
    return Config("mdlm", METHODS["mdlm"].Config(), net=net, train=Train(steps=3, batch=4, optimizer="muon", **train))


def prepared(net: Net, **train):
    torch.manual_seed(0)
    method, asked = build("mdlm", V, net), config(net, **train)
    parameters = list(method.parameters())
    return method, parameters, make_optimizer(asked, method.network, parameters)


@pytest.mark.parametrize("kind", NETS)
def test_each_weight_has_one_optimizer_and_muon_has_the_matrices_of_the_blocks(kind):
    method, parameters, optimizer = prepared(NETS[kind], weight_decay=0.03)
    listed = [p for group in optimizer.param_groups for p in group["params"]]
    assert sorted(map(id, listed)) == sorted(map(id, parameters))
    muon, adamw = optimizer.parts
    assert type(muon) is torch.optim.Muon
    names = {id(p): name for name, p in method.network.named_parameters()}
    matrices = [names[id(p)] for group in muon.param_groups for p in group["params"]]
    ends = (".qkv.weight", ".out.weight", ".mlp.0.weight", ".mlp.2.weight")
    assert all(name.endswith(ends) for name in matrices)
    assert len(matrices) >= 2
    others = {names[id(p)] for group in adamw.param_groups for p in group["params"]}
    assert not any(name.endswith((".qkv.weight", "mlp.0.weight")) for name in others)
    assert {group["weight_decay"] for group in muon.param_groups} == {0.03}


def test_a_step_is_one_of_muon_and_one_of_adamw():
    settings = {"lr": 0.02, "weight_decay": 0.05, "betas": (0.7, 0.8)}
    _, parameters, optimizer = prepared(NETS["dit"], **settings)
    for p in parameters:
        p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel()))
    muon = optimizer.parts[0]
    of_blocks = {id(p) for group in muon.param_groups for p in group["params"]}
    twins = [p.detach().clone().requires_grad_() for p in parameters]
    for twin, p in zip(twins, parameters):
        twin.grad = p.grad.clone()
    pairs = list(zip(parameters, twins))
    matrices = [twin for p, twin in pairs if id(p) in of_blocks]
    rest = [twin for p, twin in pairs if id(p) not in of_blocks]
    by_hand = [
        torch.optim.Muon(matrices, 0.02, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW([p for p in rest if p.ndim > 1], 0.02, betas=(0.7, 0.8), weight_decay=0.05, fused=True),
        torch.optim.AdamW([p for p in rest if p.ndim < 2], 0.02, betas=(0.7, 0.8), weight_decay=0.0, fused=True),
    ]
    for rate in (0.02, 0.01):  # the second by a rate that the loop writes into the groups
        for group in [*optimizer.param_groups, *(g for part in by_hand for g in part.param_groups)]:
            group["lr"] = rate
        optimizer.step()
        for part in by_hand:
            part.step()
        assert all(torch.equal(p, twin) for p, twin in pairs)


def test_what_has_no_such_matrices_or_no_whole_ones_is_refused():
    bare = torch.nn.Linear(3, 3)
    with pytest.raises(InputError, match=r"this network names none: a block's class attribute does, .* use adamw$"):
        make_optimizer(config(NETS["dit"]), bare, list(bare.parameters()))
    adapted = replace(config(NETS["dit"]), adapter=Adapter())
    with pytest.raises(InputError, match="an adapter has factors of them; use adamw"):
        fleet(adapted)
    bare.__class__ = type("Block", (torch.nn.Linear,), {"matrices": "qkv"})
    with pytest.raises(InputError, match="`matrices` of Block names 'q', which is no module of it"):
        make_optimizer(config(NETS["dit"]), bare, list(bare.parameters()))
    sharded = replace(Train(optimizer="muon", batch=4, strategy="fsdp", devices=2))
    with pytest.raises(InputError, match=r"`train.strategy` fsdp shards them; use ddp, or adamw"):
        zellige.train("mdlm", data=Data("digits", size=4), net=Net(1, 16, 2), train=sharded, run="x")


def test_a_run_with_muon_is_resumed_bit_for_bit(tmp_path):
    choices = {"data": Data("digits", size=4), "net": Net(layers=1, hidden=16, heads=2)}
    settings = Train(
        steps=6,
        batch=4,
        validate_rows=4,
        samples=0,
        save_every=3,
        keep=9,
        optimizer="muon",
        tensorboard=False,
        warmup=2,
    )
    run = zellige.train("mdlm", **choices, train=settings, run=tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b", symlinks=True)
    shutil.rmtree(tmp_path / "b" / "checkpoints" / "step-000006")
    again = zellige.train("mdlm", **choices, train=settings, run=tmp_path / "b", resume=True)
    a, b = (zellige.load(tmp_path / name, checkpoint="last").method.state_dict() for name in "ab")
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert again.validation.value == run.validation.value
    with pytest.raises(InputError, match=r"`train.optimizer` adamw, but the run has muon"):
        zellige.train("mdlm", train=replace(settings, optimizer="adamw"), run=tmp_path / "b", resume=True)
