"""What other programs call an option: our flags for it, the first of which that a command has is proposed."""

from collections.abc import Container

_NAMES = {  # ours: what PyTorch's, Hugging Face's and Lightning's scripts call it
    "--train.rate --rate": "lr learning-rate max-lr base-lr",
    "--train.batch --batch": "batch-size bs train-batch-size per-device-train-batch-size per-gpu-batch-size",
    "--count --samples": "n num num-samples n-samples number num-return-sequences",
    "--train.steps --steps": "max-steps num-steps n-steps train-steps max-iters iters iterations num-train-steps",
    "--train.steps --epochs": "epochs num-epochs max-epochs num-train-epochs",
    "--diffusion-steps --steps": "timesteps num-timesteps diffusion-timesteps num-diffusion-steps t",
    "--train.seed --seed": "random-seed manual-seed",
    "--train.device --device": "device gpu cuda accelerator",
    "--train.devices --processes": "gpus num-gpus n-gpus nproc nproc-per-node world-size",
    "--train.accumulate": "gradient-accumulation-steps grad-accum accumulate-grad-batches",
    "--train.clip": "grad-clip max-grad-norm gradient-clip-val clip-grad-norm",
    "--train.warmup": "warmup-steps num-warmup-steps warmup-iters",
    "--train.decay": "lr-scheduler lr-scheduler-type scheduler lr-schedule",
    "--train.weight-decay": "wd",
    "--train.ema": "ema-decay",
    "--train.betas": "adam-beta1 adam-beta2 beta1 beta2",
    "--train.precision": "bf16 fp16 mixed-precision dtype amp",
    "--train.validate-every": "eval-every eval-steps eval-interval val-every val-check-interval",
    "--train.save-every": "save-steps save-interval checkpoint-every",
    "--train.log-every": "logging-steps log-interval",
    "--train.workers": "num-workers dataloader-num-workers",
    "--train.wandb": "wandb-project",
    "--train.start": "pretrained init-from finetune-from model-name-or-path",
    "--net.layers": "num-layers n-layer n-layers num-hidden-layers n-blocks depth",
    "--net.hidden": "hidden-size hidden-dim dim d-model n-embd embed-dim model-dim",
    "--net.kind": "arch architecture backbone network model-type",
    "--net.channels": "ch base-channels model-channels num-channels n-channels",
    "--net.multipliers": "ch-mult channel-mult channel-multipliers dim-mults",
    "--net.blocks": "num-res-blocks n-res-blocks res-blocks",
    "--net.attention": "attn-resolutions attention-resolutions",
    "--net.heads": "num-heads n-head n-heads num-attention-heads",
    "--net.length --length": "seq-len seq-length sequence-length max-length max-len context-length block-size max-new-tokens",
    "--data.name": "data dataset dataset-name",
    "--data.path": "data-path data-dir file train-file input text-file",
    "--data.vocabulary": "vocab-size",
    "--temperature": "temp",
    "--run --out": "output output-dir out-dir save-dir logdir log-dir checkpoint-dir default-root-dir folder dir",
    "--out": "output-file",
    "--overwrite": "force overwrite-output-dir",
    "--resume": "continue resume-from resume-from-checkpoint",
}  # fmt: skip
OURS = {name: ours.split() for ours, names in _NAMES.items() for name in names.split()}


def meaning(option: str, known: Container[str]) -> str:
    """What to type instead of an option that a command does not have; "" where nothing is known of it.

    >>> meaning("--lr", ["--train.rate"])
    "did you mean '--train.rate'?"
    """
    name = option.rpartition(".")[2].lstrip("-").replace("_", "-").lower()
    if name == "steps" and "--train.steps" in known:
        T = ", --diffusion-steps for T" if "--diffusion-steps" in known else ""
        return f"--train.steps for training steps{T}"
    if "epochs" in name and name in OURS and "--train.steps" in known:
        return "training is counted in steps of --train.batch sequences: --train.steps"
    if name in ("config", "config-file", "cfg") and "--train.steps" in known:
        return "every choice is a flag; --resume takes those of the run in --run"
    ours = next((flag for flag in OURS.get(name, ()) if flag in known), None)
    return f"did you mean '{ours}'?" if ours else ""
