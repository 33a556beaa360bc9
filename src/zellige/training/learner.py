"""The method as Lightning wants it: parts of steps in, a loss out."""

import math
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import compress
from typing import TYPE_CHECKING, Any

import lightning
import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from ..core.batch import Batch
from ..data.rows import Rows
from ..methods.method import Method
from ..models.config import Config
from .compiled import CHECKED, check_gradient, compile_step
from .device import sharded_blocks
from .ema import learning_rate
from .order import Augmentation, BatchSampler, StepSeeds
from .signals import worker

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class Learner(lightning.LightningModule):
    """A method with its data, its optimizer and its step."""

    def __init__(
        self,
        method: Method,
        config: Config,
        rows: Rows,
        start: int,
        world: int,
        sharded: bool,
        shape: Sequence[int] = (),
        complement: Sequence[int] = (),
    ):
        """shape: of an image, where `data.flip` mirrors it; complement: of each base, where the other strand is read, too."""
        super().__init__()
        self.method, self.train_config, self.rows = method, config.train, rows
        self.strict_loading = config.adapter is None  # a checkpoint of a tuned model holds its adapter alone
        self.start, self.world, self.sharded = start, world, sharded
        self.parts = config.train.accumulate * world
        flip = shape if config.data.flip else None
        train = config.train
        self.augment = Augmentation(train.seed, self.parts, train.label_dropout, flip, complement, train.given_dropout)
        self.per_row = rows.tokens_total / len(rows)  # tokens that count, so that padding scales no gradient
        self.nats: list[Tensor] = []  # of the parts of this step: (nats, tokens) each
        self.norm: Tensor = torch.tensor(0.0)

    def configure_model(self) -> None:
        if self.sharded:
            mesh: Any = self.device_mesh
            shard(self.method, mesh if self.train_config.strategy == "hybrid" else mesh["data_parallel"])

    @cached_property
    def trained(self) -> list[torch.nn.Parameter]:
        """The parameters that are trained; listed when they are first needed, once they are in their shards."""
        return [p for p in self.method.parameters() if p.requires_grad]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        parameters = self.trained
        has_decay = [p.ndim > 1 or self.train_config.decay_all for p in parameters]
        groups = [
            {"params": list(compress(parameters, has_decay)), "weight_decay": self.train_config.weight_decay},
            {"params": [p for p, among in zip(parameters, has_decay) if not among], "weight_decay": 0.0},
        ]
        groups = [g for g in groups if g["params"]]
        return torch.optim.AdamW(groups, lr=self.train_config.lr, betas=self.train_config.betas, fused=True)

    def train_dataloader(self) -> DataLoader:
        t = self.train_config
        end = max(t.steps, self.start + 1)  # a run that is only to settle its last step takes no other: see `settle`
        rank = self.trainer.global_rank
        batches = BatchSampler(
            self.rows.sources, t.seed, t.batch, self.start, end, t.accumulate, rank, self.world, self.rows.redrawn
        )
        return DataLoader(
            self.rows,
            batch_sampler=batches,
            collate_fn=type(self.rows).collate,
            num_workers=t.workers,
            worker_init_fn=worker,
            pin_memory=self.trainer.strategy.root_device.type == "cuda",
            generator=torch.Generator().manual_seed(t.seed),  # else it would draw from the global one
        )

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        return batch.to(device)

    def on_train_start(self) -> None:
        self.seeds = StepSeeds(self.train_config.seed, self.parts, self.device, self.train_config.times)
        whole = self.train_config.compile and not self.sharded
        self.compiled = compile_step(self.method.loss) if whole else None

    def training_step(self, batch: Batch, index: int) -> Tensor:
        step, micro = divmod(index, self.train_config.accumulate)
        part = micro * self.world + self.trainer.global_rank
        seed = partial(self.seeds.seed_part, self.start + step, part)
        batch = self.augment(batch, self.start + step, part)
        if self.compiled and step in CHECKED and not micro:
            check_gradient(self.method.loss, self.compiled, batch, seed, self.method.named_parameters())
        nats = (self.compiled or self.method.loss)(batch, seed()).sum()
        nats_and_tokens = nats.detach().double()  # the tokens are filled in, not copied: a GPU would wait for a copy
        tokens = nats_and_tokens.new_full((), batch.tokens.numel()) if batch.mask is None else batch.mask.sum().double()
        self.nats.append(torch.stack([nats_and_tokens, tokens]))
        return nats / (len(batch) * self.per_row)

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Optimizer, optimizer_closure: Callable[[], Any] | None = None
    ) -> None:
        step = self.start + batch_idx // self.train_config.accumulate
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(self.train_config, step)
        optimizer.step(closure=optimizer_closure)

    def configure_gradient_clipping(
        self, optimizer: Optimizer, gradient_clip_val=None, gradient_clip_algorithm=None
    ) -> None:
        limit = self.train_config.clip or math.inf
        norm = torch.nn.utils.clip_grad_norm_([p for p in self.trained if p.grad is not None], limit)
        self.norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm  # pyright: ignore


def shard(method: Method, mesh: "DeviceMesh") -> None:
    """Shard a method over the devices of a mesh (the last dimension of two, copied over the first), block by block; its entries
    gather what lies outside the blocks."""
    from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

    if isinstance(method, FSDPModule):
        return  # Lightning calls configure_model more than once
    for block in sharded_blocks(method):
        fully_shard(block, mesh=mesh)
    fully_shard(method, mesh=mesh, reshard_after_forward=False)
    for entry in ("loss", "terms", "predict"):
        register_fsdp_forward_method(method, entry)
