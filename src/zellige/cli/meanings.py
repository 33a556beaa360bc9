"""Names that other programs use for options: an exact synonym is accepted, a near one is answered by ours."""

from collections.abc import Container

_SAME = {  # ours: what PyTorch's, Hugging Face's and Lightning's scripts call it; the first that a command has is meant
    "--train.lr": "lr learning-rate max-lr",
    "--train.batch --batch": "batch-size bs train-batch-size",
    "--count --samples": "num-samples n-samples num-return-sequences",
    "--train.steps --steps": "max-steps num-steps n-steps train-steps max-iters num-train-steps",
    "--epochs": "num-epochs max-epochs num-train-epochs",
    "--train.seed --seed": "seed random-seed manual-seed",
    "--train.device --device": "device",
    "--train.devices --processes": "num-gpus n-gpus nproc nproc-per-node world-size",
    "--train.clip": "grad-clip max-grad-norm gradient-clip-val clip-grad-norm",
    "--train.warmup": "warmup-steps num-warmup-steps warmup-iters",
    "--train.weight-decay": "wd weight-decay",
    "--train.ema": "ema-decay ema",
    "--train.validate-every": "eval-every eval-steps eval-interval val-every",
    "--train.save-every": "save-steps save-interval checkpoint-every",
    "--train.async-save": "async-save save-async async-checkpoint",
    "--train.log-every": "logging-steps log-interval",
    "--train.workers": "num-workers dataloader-num-workers",
    "--train.wandb": "wandb-project",
    "--train.start": "init-from finetune-from",
    "--rank": "lora-r lora-rank",
    "--alpha": "lora-alpha",
    "--targets": "target-modules lora-target-modules",
    "--net.layers": "num-layers n-layer n-layers num-hidden-layers depth",
    "--net.hidden": "hidden-size hidden-dim d-model n-embd embed-dim model-dim",
    "--net.checkpoint": "gradient-checkpointing activation-checkpointing checkpoint-activations",
    "--train.compile": "torch-compile",
    "--net.channels": "base-channels model-channels num-channels n-channels",
    "--net.heads": "num-heads n-head n-heads num-attention-heads",
    "--net.length --length": "seq-len seq-length sequence-length max-seq-len context-length",
    "--data.name": "dataset dataset-name",
    "--data.path": "data-path data-dir train-file text-file",
    "--temperature": "temp",
    "--run --out": "output output-dir out-dir save-dir",
    "--overwrite": "overwrite-output-dir",
}
_NEAR = {
    "--train.lr": "base-lr",
    "--train.batch --batch": "per-device-train-batch-size per-gpu-batch-size",
    "--count --samples": "n num number",
    "--train.steps --steps": "iters iterations",
    "--diffusion-steps --steps": "timesteps num-timesteps diffusion-timesteps num-diffusion-steps t",
    "--train.device --device": "gpu cuda accelerator",
    "--train.devices --processes": "gpus",
    "--train.accumulate": "gradient-accumulation-steps grad-accum accumulate-grad-batches",
    "--train.decay": "lr-scheduler lr-scheduler-type scheduler lr-schedule",
    "--train.betas": "adam-beta1 adam-beta2 beta1 beta2",
    "--train.precision": "bf16 fp16 tf32 allow-tf32 matmul-precision mixed-precision dtype amp",
    "--train.validate-every": "val-check-interval",
    "--train.start": "pretrained model-name-or-path",
    "--net.layers": "n-blocks",
    "--net.hidden": "dim",
    "--net.kind": "arch architecture backbone network model-type",
    "--net.channels": "ch",
    "--net.multipliers": "ch-mult channel-mult channel-multipliers dim-mults",
    "--net.blocks": "num-res-blocks n-res-blocks res-blocks",
    "--net.attention": "attn-resolutions attention-resolutions",
    "--net.length --length": "max-length max-len block-size max-new-tokens",
    "--data.name": "data",
    "--data.path": "file input",
    "--data.vocabulary": "vocab-size",
    "--run --out": "logdir log-dir checkpoint-dir default-root-dir folder dir",
    "--out": "output-file",
    "--overwrite": "force",
    "--size": "preset model-size",
    "--config": "config-file cfg",
    "--resume": "continue resume-from resume-from-checkpoint",
}
_SAME_VALUE = {  # the value of an option, as those scripts call it
    "bfloat16": "bf16 bf16-mixed",
    "float32": "fp32 float 32 32-true",
}
COMMAND_NEAR = {  # a command, as others call it: what to type
    "generate": "sample",
    "chat": "sample MODEL --chat",
    "eval": "evaluate",
    "test": "evaluate",
    "inpaint": "infill",
    "fill": "infill",
    "finetune": "tune",
    "fine-tune": "tune",
    "convert": "import",
    "download": "import",
    "web": "play",
}
SAME = {name: ours.split() for ours, names in _SAME.items() for name in names.split()}
NEAR = {name: ours.split() for ours, names in _NEAR.items() for name in names.split()}
SAME_VALUE = {name: ours for ours, names in _SAME_VALUE.items() for name in names.split()}


def synonym(option: str, known: Container[str]) -> str:
    """The option of a command that `option` is another name of; itself where it is none.

    >>> synonym("--lr", ["--train.lr"]), synonym("--max_steps", ["--steps"]), synonym("--seed", ["--seed"])
    ('--train.lr', '--steps', '--seed')
    """
    name = option.removeprefix("--").replace("_", "-").lower()
    if f"--{name}" in known:
        return option
    return next((flag for flag in SAME.get(name, ()) if flag in known), option)


def same_value(value: str, allowed: Container[str]) -> str:
    """The value among those an option allows that this one is another name of; itself where it is none.

    >>> same_value("bf16", ["float32", "bfloat16"]), same_value("bf16", ["cpu"])
    ('bfloat16', 'bf16')
    """
    word = SAME_VALUE.get(value.lower(), value)
    return word if value not in allowed and word in allowed else value


def meaning(option: str, known: Container[str]) -> str:
    """Hint for an option that a command does not have; "" where nothing is known of it.

    >>> meaning("--iterations", ["--train.steps"])
    "did you mean '--train.steps'?"
    """
    name = option.rpartition(".")[2].lstrip("-").replace("_", "-").lower()
    if name == "steps" and "--train.steps" in known:
        T = ", --diffusion-steps for T" if "--diffusion-steps" in known else ""
        return f"--train.steps for training steps{T}"
    flag_here = next((flag for flag in (*SAME.get(name, ()), *NEAR.get(name, ())) if flag in known), None)
    return f"did you mean '{flag_here}'?" if flag_here else ""
