"""What stands in the configurations that the papers' authors published, beside the recipes, value by value.

Written down from the files, never from RECIPES: so a wrong number in a recipe is a disagreement, which a test finds
(`tests/training/test_recipes.py`), and docs/recipes.md shows both. Where the paper says another value, the recipe takes that one
(`Entry.paper`), and one of its differences names the two.
"""

import math
from dataclasses import dataclass
from typing import Any

from zellige.training.recipes import Recipe


@dataclass(frozen=True)
class File:
    """A published file: where it was read."""

    repository: str
    path: str
    commit: str
    fork: str = ""

    def __str__(self) -> str:
        at = f"{self.commit[:8]} of the copy {self.fork}" if self.fork else self.commit[:8]
        return f"{self.repository}, {self.path} ({at})"


GOOGLE, TAULDR, SEDD, RADD, MDLM = (
    "google-research/google-research", "andrew-cr/tauLDR", "louaaron/Score-Entropy-Discrete-Diffusion", "ML-GSAI/RADD",
    "kuleshov-group/mdlm",
)  # fmt: skip
_MD4 = ("97a06878bf76290e9e6ac0b2264dd7c7c493e374", "matthew9671/md4")  # that copy's first commit
GUIDANCE, BD3 = "kuleshov-group/discrete-diffusion-guidance", "kuleshov-group/bd3lms"
_BD3, _UDLM = "zhihanyang2022/bd3lms", "denaxen/discrete-diffusion-guidance"  # copies
FILES = {
    "d3pm-images": File(GOOGLE, "d3pm/images/config.py", "30adf0ec5f35f9609c2f1d896005e184195d9146"),
    "d3pm-images-gm": File(GOOGLE, "d3pm/images/gm.py", "20c6bc70bfcedc40465942e8815f3de57d1658ce"),
    "d3pm-images-loss": File(GOOGLE, "d3pm/images/diffusion_categorical.py", "30adf0ec5f35f9609c2f1d896005e184195d9146"),
    "d3pm-images-model": File(GOOGLE, "d3pm/images/model.py", "30adf0ec5f35f9609c2f1d896005e184195d9146"),
    "d3pm-text": File(GOOGLE, "d3pm/text/configs.py", "30adf0ec5f35f9609c2f1d896005e184195d9146"),
    "d3pm-text-main": File(GOOGLE, "d3pm/text/main.py", "1d4d2f1aa6f2883a790d2ae46a6ee8ab150d8f31"),
    "d3pm-text-trainers": File(GOOGLE, "d3pm/text/trainers.py", "1d49f2c0d5506a6e11115726164d42f6b7b7b95a"),
    "tauldr": File(TAULDR, "config/train/cifar10.py", "6f34f8861aeb45118b1023bfbafa4349c80cb44a"),
    "tauldr-eval": File(TAULDR, "config/eval/cifar10.py", "5128d4a5cce07f707780ccb03e8de2b48950aafa"),
    "tauldr-piano": File(TAULDR, "config/train/piano.py", "6f34f8861aeb45118b1023bfbafa4349c80cb44a"),
    "tauldr-piano-eval": File(TAULDR, "config/eval/piano.py", "6f34f8861aeb45118b1023bfbafa4349c80cb44a"),
    "tauldr-training": File(TAULDR, "lib/training/training.py", "6f34f8861aeb45118b1023bfbafa4349c80cb44a"),
    "tauldr-optimizers": File(TAULDR, "lib/optimizers/optimizers.py", "6f34f8861aeb45118b1023bfbafa4349c80cb44a"),
    "sedd": File(SEDD, "configs/config.yaml", "0605786da5ccb5747545e26d66fdf477187598b6"),
    "sedd-medium": File(SEDD, "configs/model/medium.yaml", "0605786da5ccb5747545e26d66fdf477187598b6"),
    "sedd-readme": File(SEDD, "README.md", "0605786da5ccb5747545e26d66fdf477187598b6"),
    "sedd-model": File(SEDD, "configs/model/small.yaml", "0605786da5ccb5747545e26d66fdf477187598b6"),
    "radd": File(RADD, "configs/config.yaml", "92a23fba50279ee875e5dcfd08894326982066a3"),
    "radd-model": File(RADD, "configs/model/small_radd.yaml", "92a23fba50279ee875e5dcfd08894326982066a3"),
    "radd-medium": File(RADD, "configs/model/medium_radd.yaml", "92a23fba50279ee875e5dcfd08894326982066a3"),
    "mdlm": File(MDLM, "configs/config.yaml", "06dd29f38c1f68e99c2e4a148846a05026b478d0"),
    "mdlm-model": File(MDLM, "configs/model/small.yaml", "06dd29f38c1f68e99c2e4a148846a05026b478d0"),
    "mdlm-rate": File(MDLM, "configs/lr_scheduler/constant_warmup.yaml", "06dd29f38c1f68e99c2e4a148846a05026b478d0"),
    "mdlm-lm1b": File(MDLM, "configs/data/lm1b.yaml", "06dd29f38c1f68e99c2e4a148846a05026b478d0"),
    "mdlm-owt-script": File(MDLM, "scripts/train_owt_mdlm.sh", "06dd29f38c1f68e99c2e4a148846a05026b478d0"),
    "mdlm-lm1b-script": File(MDLM, "scripts/train_lm1b_d3pm.sh", "06dd29f38c1f68e99c2e4a148846a05026b478d0"),
    "mdlm-lm1b-ar-script": File(MDLM, "scripts/train_lm1b_ar.sh", "06dd29f38c1f68e99c2e4a148846a05026b478d0"),
    "mdlm-owt-sedd-script": File(MDLM, "scripts/train_owt_sedd.sh", "06dd29f38c1f68e99c2e4a148846a05026b478d0"),
    "md4-text8": File("google-deepmind/md4", "md4/configs/md4/text8.py", *_MD4),
    "md4-owt": File("google-deepmind/md4", "md4/configs/md4/openwebtext.py", *_MD4),
    "md4-cifar10": File("google-deepmind/md4", "md4/configs/md4/cifar10.py", *_MD4),
    "md4-imagenet64": File("google-deepmind/md4", "md4/configs/md4/imagenet64.py", *_MD4),
    "md4-fineweb": File("google-deepmind/md4", "md4/configs/md4/fineweb_edu.py", *_MD4),
    "genmd4-text8": File("google-deepmind/md4", "md4/configs/genmd4/text8.py", *_MD4),
    "genmd4-owt": File("google-deepmind/md4", "md4/configs/genmd4/openwebtext.py", *_MD4),
    "md4-network": File("google-deepmind/md4", "md4/networks/transformer.py", *_MD4),
    "md4-input": File("google-deepmind/md4", "md4/input_pipeline.py", *_MD4),
    "md4-train": File("google-deepmind/md4", "md4/train.py", *_MD4),
    "udlm": File(GUIDANCE, "scripts/train_lm1b.sh", "47d31290de432ce29f24b2dc33e483cae0adfdcd", _UDLM),
    "udlm-config": File(GUIDANCE, "configs/config.yaml", "1e55063f80d5f837ca8e5120cd6e7df3f33027e5", _UDLM),
    "bd3lm": File(BD3, "configs/config.yaml", "1f396ca2e334f00e76ae618ba79c16260eed5134", _BD3),
    "bd3lm-model": File(BD3, "configs/model/small.yaml", "35fea73912429efa677c5be1994f4926c333dd79", _BD3),
    "bd3lm-algo": File(BD3, "configs/algo/bd3lm.yaml", "df505ad48f24d8d489f844feee49b0883820d55e", _BD3),
    "bd3lm-owt": File(BD3, "scripts/train/train_owt_bd3lm.sh", "1c87378f2f6fb7b1ad83b0fbf4a702c6e531a0ce", _BD3),
    "bd3lm-lm1b": File(BD3, "scripts/train/train_lm1b_bd3lm.sh", "246d3fb8ccd7c61ba94117a3fd132442e9a8fdc8", _BD3),
    "bd3lm-lm1b-ar": File(BD3, "scripts/train/train_lm1b_ar.sh", "334448d4583c118488f3dcb65420f7c451752c79", _BD3),
    "bd3lm-lm1b-sedd": File(BD3, "scripts/train/train_lm1b_sedd.sh", "334448d4583c118488f3dcb65420f7c451752c79", _BD3),
    "bd3lm-data": File(BD3, "configs/data/lm1b-wrap.yaml", "35fea73912429efa677c5be1994f4926c333dd79", _BD3),
    "bd3lm-readme": File(BD3, "README.md", "085e25a7ec4f92b73db61f6007a1c13edc42af91", _BD3),
}  # fmt: skip
PAPER = ""  # in place of a file


@dataclass(frozen=True)
class Entry:
    """One value.

    Attributes:
        ours: the choice of a recipe that it is about: `train.lr`, `net.dropout`, `data.flip`, `options.auxiliary`, `steps`.
        key, value: what it is called in the file, and its value there; of `PAPER` the section.
        file: a name in FILES, or PAPER.
        here: the same value as a recipe says it, where that is another way: in another unit, at another scale of the loss.
        how: how `here` comes from `value`, in words.
        paper: the paper's own value, as a recipe says it, where it contradicts the file; `words` that a difference must have.
    """

    ours: str
    key: str
    value: Any
    file: str
    here: Any = None
    how: str = ""
    paper: Any = None
    words: tuple[str, ...] = ()

    @property
    def wanted(self) -> Any:
        """What the recipe must say."""
        return next(value for value in (self.paper, self.here, self.value) if value is not None)


# ---------------------------------------------------------------------------------- the files
def _adam(file: str, betas: str) -> Entry:
    return Entry("train.betas", "beta1, beta2", betas, file, (0.9, 0.999), "0.9 and 0.999")


_T, _PIXELS = 1000, 3072
D3PM_IMAGES = [
    Entry("data.name", "dataset.name", "CIFAR10", "d3pm-images", "cifar10"),
    Entry("data.flip", "dataset.args.randflip", True, "d3pm-images"),
    Entry("net.kind", "model.name", "unet0", "d3pm-images", "unet"),
    Entry("net.channels", "model.args.ch", 128, "d3pm-images"),
    Entry("net.multipliers", "model.args.ch_mult", [1, 2, 2, 2], "d3pm-images", (1, 2, 2, 2)),
    Entry("net.attention", "model.args.attn_resolutions", [16], "d3pm-images", (16,)),
    Entry("net.dropout", "model.args.dropout", 0.1, "d3pm-images"),
    Entry("options.diffusion_steps", "model.diffusion_betas.num_timesteps", _T, "d3pm-images"),
    Entry("train.steps", "train.num_train_steps", 1_500_000, "d3pm-images"),
    Entry("train.batch", "train.batch_size", 128, "d3pm-images"),
    Entry("train.lr", "train.learning_rate", 2e-4, "d3pm-images"),
    Entry("train.warmup", "train.learning_rate_warmup_steps", 0, "d3pm-images"),
    Entry("train.decay", "learning_rate", "constant", "d3pm-images-gm"),
    Entry("train.weight_decay", "train.weight_decay", 0.0, "d3pm-images"),
    Entry("train.betas", "adam_beta1, adam_beta2", [0.9, 0.999], "d3pm-images-gm", (0.9, 0.999)),
    Entry("train.ema", "train.ema_decay", 0.9999, "d3pm-images"),
    Entry(
        "train.clip", "train.grad_clip", 1.0, "d3pm-images", 1.0 * _T * math.log(2),
        "x T ln 2: its loss is the KL of one of T steps, in bits per dimension (vb_terms_bpd)",
    ),
    Entry("steps", "num_timesteps of p_sample_loop", _T, "d3pm-images-loss"),
    Entry("drawing.argmax", "noise of p_sample at t = 0", "none", "d3pm-images-loss", "last"),
]  # fmt: skip
_GAUSS = [
    Entry("options.process", "model.transition_mat_type", "gaussian", "d3pm-images"),
    Entry("options.schedule", "model.diffusion_betas.type", "linear", "d3pm-images"),
    Entry("options.head", "model.args.model_output", "logistic_pars", "d3pm-images", "logistic"),
    Entry(
        "options.auxiliary",
        "model.hybrid_coeff",
        0.001,
        "d3pm-images",
        0.001 * _T,
        "x T: ours is added to the sum of all T steps",
    ),
]
_LOGITS = Entry("options.head", "UNet's logits", "x_onehot + h", "d3pm-images-model", "residual")
_ABSORBING = [
    Entry("options.process", "_get_absorbing_transition_mat", "into num_pixel_vals // 2", "d3pm-images-loss", "middle"),
    Entry(
        "options.schedule", "get_diffusion_betas", "jsd with absorbing", "d3pm-images-loss", "paper", "1 / (T - i + 1)"
    ),
    _LOGITS,
    Entry(
        "options.auxiliary",
        "model.hybrid_coeff",
        0.001,
        "d3pm-images",
        0.001 * _T,
        "x T: ours is added to the sum of all T steps",
    ),
]
_UNIFORM = [
    Entry("options.process", "model.transition_mat_type, its comment", "uniform", "d3pm-images"),
    Entry("options.schedule", "get_diffusion_betas", "cosine with uniform", "d3pm-images-loss", "cosine"),
    _LOGITS,
    Entry("options.levels", "normalize_data of x in UNet", True, "d3pm-images-model"),
    Entry("options.auxiliary", "table 3", "L_vb alone", PAPER, 0.0),
]
_B2 = ("B.2", "5e-4", "2e-4", "10,000", "5,000", "no decay")


def _d3pm_text(length: int, data: str, key: str, value: Any, **choices: Any) -> list[Entry]:
    return [
        Entry("data.name", "run_experiment.dataset_name", data, "d3pm-text"),
        *(Entry(f"data.{name}", key, value, "d3pm-text", choice) for name, choice in choices.items()),
        Entry("net.length", "datasets.load.max_length", length, "d3pm-text"),
        Entry("net.layers", "num_layers of gpt_base", 12, "d3pm-text"),
        Entry("net.hidden", "dim of gpt_base", 768, "d3pm-text"),
        Entry("net.heads", "num_heads of gpt_base", 768 // 64, "d3pm-text"),
        Entry("net.dropout", "dropout_rate of gpt_base", 0.0, "d3pm-text"),
        Entry("options.process", "create_discrete_diffusion.kind", "mask", "d3pm-text", "absorbing"),
        Entry("options.diffusion_steps", "create_discrete_diffusion.num_steps", _T, "d3pm-text"),
        Entry(
            "options.auxiliary", "discrete_diffusion_loss_fn.hybrid_lambda", 0.01, "d3pm-text", 0.01 * _T,
            "x T: ours is added to the sum of all T steps",
        ),
        Entry("train.steps", "appendix B.2", 1_000_000, PAPER),
        Entry("train.batch", "appendix B.2", 512, PAPER),
        Entry("train.lr", "base_learning_rate", 2e-4, "d3pm-text", paper=5e-4, words=_B2),
        Entry("train.warmup", "warmup_steps", 5000, "d3pm-text", paper=10_000, words=_B2),
        Entry("train.decay", "factors", "linear_warmup_from * constant", "d3pm-text", paper="inverse-sqrt", words=_B2),
        _adam("d3pm-text-trainers", "optim.Adam's own"),
        Entry("train.weight_decay", "optim.Adam's weight_decay", "none", "d3pm-text-trainers", 0.0),
        Entry("train.ema", "TrainState", "no average of weights", "d3pm-text-trainers", 0.0),
        Entry(
            "train.clip", "trainers.Trainer.grad_clip", 0.25, "d3pm-text", 0.25 * _T / length,
            "x T / L: its loss is the KL of one of T steps, summed over L tokens (compute_kl_reverse_process)",
        ),
    ]  # fmt: skip


TAULDR_CIFAR10 = [
    Entry("data.name", "data.name", "DiscreteCIFAR10", "tauldr", "cifar10"),
    Entry("data.flip", "data.random_flips", True, "tauldr"),
    Entry("net.kind", "model.name", "GaussianTargetRateImageX0PredEMA", "tauldr", "unet"),
    Entry("net.channels", "model.ch", 128, "tauldr"),
    Entry("net.multipliers", "model.ch_mult", [1, 2, 2, 2], "tauldr", (1, 2, 2, 2)),
    Entry("net.blocks", "model.num_res_blocks", 2, "tauldr", 0, "0 is the published 2"),
    Entry("net.attention", "model.scale_count_to_put_attn", 1, "tauldr", (16,), "at the second scale, of 16 pixels"),
    Entry("net.dropout", "model.dropout", 0.1, "tauldr"),
    Entry("net.rescale", "model.skip_rescale", True, "tauldr"),
    Entry("options.rate_sigma", "model.rate_sigma", 6.0, "tauldr"),
    Entry("options.target_sigma", "model.Q_sigma", 512.0, "tauldr"),
    Entry("options.growth", "model.time_exponential", 100.0, "tauldr"),
    Entry("options.base", "model.time_base", 3.0, "tauldr"),
    Entry("options.min_time", "loss.min_time", 0.01, "tauldr"),
    Entry("options.objective", "loss.one_forward_pass", True, "tauldr", "one-pass-biased"),
    Entry(
        "options.auxiliary", "loss.nll_weight", 0.001, "tauldr", 0.001 * 0.99,
        "x 0.99: its bound is a mean over times from 0.01 to 1, ours their integral",
    ),
    Entry("train.steps", "training.n_iters", 2_000_000, "tauldr"),
    Entry("train.batch", "data.batch_size", 128, "tauldr"),
    Entry("train.lr", "optimizer.lr", 2e-4, "tauldr"),
    Entry("train.warmup", "training.warmup", 5000, "tauldr"),
    Entry("train.decay", "g['lr'] after the warm-up", "constant", "tauldr-training"),
    _adam("tauldr-optimizers", "torch.optim.Adam's own"),
    Entry("train.weight_decay", "torch.optim.Adam's weight_decay", 0.0, "tauldr-optimizers"),
    Entry("train.ema", "model.ema_decay", 0.9999, "tauldr"),
    Entry(
        "train.clip", "clip_grad_norm_", 1.0, "tauldr-training", 1.0 * 0.99 / _PIXELS,
        "x 0.99 / 3,072: its loss is a sum over the dimensions, and a mean over times from 0.01 to 1 (GenericAux)",
    ),
    Entry("steps", "sampler.num_steps", 500, "tauldr-eval"),
    Entry("drawing.corrector", "sampler.num_corrector_steps", 10, "tauldr-eval"),
    Entry("drawing.corrector_step", "sampler.corrector_step_size_multiplier", 1.5, "tauldr-eval"),
    Entry(
        "drawing.corrector_from", "sampler.corrector_entry_time", 0.1, "tauldr-eval", 0.0909,
        "(0.1 - 0.01) / 0.99: ours begin where theirs are at 0.01",
    ),
]  # fmt: skip


TAULDR_LAKH = [
    Entry("data.name", "data.name", "LakhPianoroll", "tauldr-piano", "lakh-pianoroll"),
    Entry("data.given", "loss.condition_dim", 32, "tauldr-piano", "prefix:32"),
    Entry("vocabulary", "data.S", 129, "tauldr-piano"),
    Entry("net.length", "data.shape", [256], "tauldr-piano", 256),
    Entry("net.layers", "model.num_layers", 6, "tauldr-piano"),
    Entry("net.hidden", "model.d_model", 128, "tauldr-piano"),
    Entry("net.heads", "model.num_heads", 8, "tauldr-piano"),
    Entry("net.dropout", "model.dropout", 0.1, "tauldr-piano"),
    Entry("net.condition", "model.temb_dim", 128, "tauldr-piano"),
    Entry("net.given", "model.name", "UniformRateSequenceTransformerEMA", "tauldr-piano", paper=True,
          words=("sees which positions are given",)),
    Entry("options.process", "model.name", "UniformRateSequenceTransformerEMA", "tauldr-piano", "uniform"),
    Entry("options.base", "model.rate_const", 0.03, "tauldr-piano"),
    Entry("options.min_time", "loss.min_time", 0.01, "tauldr-piano"),
    Entry("options.objective", "loss.one_forward_pass", True, "tauldr-piano", "one-pass-biased"),
    Entry(
        "options.auxiliary", "loss.nll_weight", 0.001, "tauldr-piano", 0.001 * 0.99,
        "x 0.99: its bound is a mean over times from 0.01 to 1, ours their integral",
    ),
    Entry("train.steps", "training.n_iters", 1_000_000, "tauldr-piano"),
    Entry("train.batch", "data.batch_size", 64, "tauldr-piano"),
    Entry("train.lr", "optimizer.lr", 2e-4, "tauldr-piano"),
    Entry("train.warmup", "training.warmup", 5000, "tauldr-piano"),
    Entry("train.decay", "g['lr'] after the warm-up", "constant", "tauldr-training"),
    _adam("tauldr-optimizers", "torch.optim.Adam's own"),
    Entry("train.weight_decay", "torch.optim.Adam's weight_decay", 0.0, "tauldr-optimizers"),
    Entry("train.ema", "model.ema_decay", 0.9999, "tauldr-piano"),
    Entry(
        "train.clip", "clip_grad_norm_", 1.0, "tauldr-training", 1.0 * 0.99 / 224,
        "x 0.99 / 224: its loss is a sum over the positions that are not given, and a mean over times from 0.01 to 1",
    ),
    Entry("steps", "sampler.num_steps", 1000, "tauldr-piano-eval"),
    Entry("drawing.corrector", "sampler.num_corrector_steps", 2, "tauldr-piano-eval"),
    Entry("drawing.corrector_step", "sampler.corrector_step_size_multiplier", 0.1, "tauldr-piano-eval"),
    Entry(
        "drawing.corrector_from", "sampler.corrector_entry_time", 0.9, "tauldr-piano-eval", 0.899,
        "(0.9 - 0.01) / 0.99: ours begin where theirs are at 0.01",
    ),
]  # fmt: skip


def _small(file: str, dropout: float) -> list[Entry]:
    """The network of SEDD and its successors."""
    return [
        Entry("net.layers", "n_blocks", 12, file), Entry("net.hidden", "hidden_size", 768, file),
        Entry("net.heads", "n_heads", 12, file), Entry("net.condition", "cond_dim", 128, file),
        Entry("net.dropout", "dropout", dropout, file),
    ]  # fmt: skip


SEDD_OWT = [
    Entry("data.name", "data.train", "openwebtext", "sedd"),
    *_small("sedd-model", 0.1),
    Entry("net.length", "length", 1024, "sedd-model"),
    Entry("options.process", "graph.type", "absorb", "sedd", "absorbing"),
    Entry("options.schedule", "noise.type", "loglinear", "sedd"),
    Entry("train.steps", "training.n_iters", 1_300_001, "sedd", paper=400_000, words=("400,000", "1.3 million")),
    Entry("train.batch", "training.batch_size", 512, "sedd"),
    Entry("train.lr", "optim.lr", 3e-4, "sedd"),
    Entry("train.warmup", "optim.warmup", 2500, "sedd", paper=2000, words=("2,000", "2,500")),
    Entry("train.decay", "lr after the warm-up (losses.py)", "constant", "sedd"),
    Entry("train.weight_decay", "optim.weight_decay", 0, "sedd"),
    Entry("train.betas", "optim.beta1, optim.beta2", [0.9, 0.999], "sedd", (0.9, 0.999)),
    Entry("train.ema", "training.ema", 0.9999, "sedd"),
    Entry(
        "train.clip",
        "optim.grad_clip",
        1.0,
        "sedd",
        1.0 / 1024,
        "/ L: its loss is summed over the 1,024 tokens (losses.py)",
    ),
]
RADD_OWT = [
    Entry("data.name", "data.train", "openwebtext", "radd"),
    *_small("radd-model", 0.02),
    Entry("net.length", "length", 1024, "radd-model"),
    Entry("options.schedule", "noise.type", "loglinear", "radd"),
    Entry("options.loss", "training.loss_type", "t_DCE", "radd", paper="lambda-dce", words=("lambda-DCE", "t-DCE")),
    Entry("train.steps", "training.n_iters", 1_000_001, "radd", paper=400_000, words=("400,000", "1,000,001")),
    Entry("train.batch", "training.batch_size", 512, "radd"),
    Entry("train.lr", "optim.lr", 3e-4, "radd"),
    Entry("train.warmup", "optim.warmup", 2500, "radd"),
    Entry("train.decay", "lr after the warm-up (losses.py)", "constant", "radd"),
    Entry("train.weight_decay", "optim.weight_decay", 0, "radd", paper=0.03, words=("weight decay 0.03",)),
    Entry("train.betas", "optim.beta1, optim.beta2", [0.9, 0.999], "radd", (0.9, 0.999)),
    Entry("train.ema", "training.ema", 0.9999, "radd"),
    Entry("steps", "sampling.steps", 1024, "radd"),
    Entry(
        "train.clip",
        "optim.grad_clip",
        1.0,
        "radd",
        1.0 / 1024,
        "/ L: its loss is summed over the 1,024 tokens (losses.py)",
    ),
]


def _lightning(file: str) -> list[Entry]:
    """What MDLM, UDLM and BD3-LM have in one form. Their loss is a mean over tokens, as ours."""
    return [
        Entry("train.steps", "trainer.max_steps", 1_000_000, file),
        Entry("train.batch", "loader.global_batch_size", 512, file),
        Entry("train.lr", "optim.lr", 3e-4, file),
        Entry("train.warmup", "num_warmup_steps", 2500, "mdlm-rate"),
        Entry("train.decay", "_target_", "get_constant_schedule_with_warmup", "mdlm-rate", "constant"),
        Entry("train.weight_decay", "optim.weight_decay", 0, file),
        Entry("train.betas", "optim.beta1, optim.beta2", [0.9, 0.999], file, (0.9, 0.999)),
        Entry("train.ema", "training.ema", 0.9999, file),
        Entry("train.clip", "trainer.gradient_clip_val", 1.0, file, 1.0, "its loss is a mean over tokens, as ours"),
    ]


def _mdlm(data: str, name: str, script: str, length: int) -> list[Entry]:
    return [
        Entry("data.name", "data", data, script, name),
        *_small("mdlm-model", 0.1),
        Entry("net.length", "model.length", length, script),
        *_lightning("mdlm"),
        Entry("options.schedule", "noise", "loglinear", "mdlm"),
        Entry("steps", "sampling.steps", 1000, script),
    ]


def _md4_entries(
    file: str,
    data: str,
    net: list[Entry],
    dropout: float,
    steps: int,
    batch: int,
    rate: Entry,
    warmup: int,
    decay: Entry,
    b2: float,
    draws: Entry,
) -> list[Entry]:
    return [
        Entry("data.name", "dataset", data, file, {"downsampled_imagenet/64x64": "imagenet64-oord"}.get(data)),
        *net,
        Entry("net.dropout", "dropout_rate", dropout, file),
        Entry("train.steps", "num_train_steps", steps, file),
        Entry("train.batch", "batch_size", batch, file),
        rate,
        Entry("train.warmup", "warmup_steps", warmup, file),
        Entry("train.decay", "learning_rate_schedule", "cosine", file),
        decay,
        Entry("train.betas", "b1 (train.py), b2", [0.9, b2], file, (0.9, b2)),
        Entry("train.ema", "ema_rate", 0.9999, file),
        Entry("train.clip", "clip", 0.0, file, 0.0, "it does not clip"),
        Entry("options.schedule", "noise_schedule", "linear", file),
        draws,
    ]  # fmt: skip


def _md4_text(file: str, length: int) -> list[Entry]:
    return [
        Entry("net.length", "data_shape", [length], file, length),
        Entry("net.layers", "n_layers", 12, file),
        Entry("net.hidden", "feature_dim x num_heads", [64, 12], file, 64 * 12),
        Entry("net.heads", "num_heads", 12, file),
        Entry("net.mlp", "mlp_type", "glu", file, paper="swiglu", words=("SwiGLU", "`glu`")),
        Entry("net.drop_channels", "Dropout1d", "one mask for all positions", "md4-network", True),
    ]


PUBLISHED: dict[str, list[Entry]] = {
    "d3pm-cifar10-gauss": [*D3PM_IMAGES, *_GAUSS],
    "d3pm-cifar10-absorbing": [*D3PM_IMAGES, *_ABSORBING],
    "d3pm-cifar10-uniform": [*D3PM_IMAGES, *_UNIFORM],
    "d3pm-text8": _d3pm_text(256, "text8", "datasets.load.sample_crop_train", True, crop=True),
    "d3pm-lm1b": _d3pm_text(128, "lm1b", "datasets.load.pack", True, pack="wrap"),
    "tauldr-cifar10": TAULDR_CIFAR10,
    "tauldr-lakh": TAULDR_LAKH,
    "sedd-owt": SEDD_OWT,
    "radd-owt": RADD_OWT,
    "mdlm-owt": _mdlm("openwebtext-split", "openwebtext", "mdlm-owt-script", 1024),
    "mdlm-lm1b": [
        *_mdlm("lm1b", "lm1b", "mdlm-lm1b-script", 128), Entry("data.pack", "wrap", False, "mdlm-lm1b", "document"),
    ],
    "md4-text8": [
        *_md4_entries(
            "md4-text8", "text8", _md4_text("md4-text8", 256), 0.05, 1_000_000, 512,
            Entry("train.lr", "learning_rate of sweep", 5e-4, "md4-text8", paper=3e-4, words=("3e-4", "5e-4")), 2000,
            Entry("train.weight_decay", "weight_decay of sweep", 0.03, "md4-text8"), 0.999,
            Entry("steps", "timesteps", 1000, "md4-text8"),
        ),
        Entry("data.crop", "overlapping of train_source", True, "md4-input"),
    ],
    "md4-owt": _md4_entries(
        "md4-owt", "openwebtext", _md4_text("md4-owt", 1024), 0.02, 1_000_000, 512,
        Entry("train.lr", "learning_rate", 3e-4, "md4-owt"), 2000,
        Entry("train.weight_decay", "weight_decay of sweep", 0.03, "md4-owt"), 0.999,
        Entry("steps", "timesteps", 1000, "md4-owt"),
    ),
    "md4-cifar10": [
        *_md4_entries(
            "md4-cifar10", "cifar10",
            [
                Entry("net.kind", "n_dit_layers", 0, "md4-cifar10", "flat-unet"),
                Entry("net.channels", "feature_dim", 128, "md4-cifar10"),
                Entry("net.blocks", "n_layers", 32, "md4-cifar10", 0, "0 is the published 32"),
            ],
            0.1, 2_000_000, 256,
            Entry("train.lr", "learning_rate", 2e-4, "md4-cifar10", paper=4e-4, words=("4e-4", "2e-4")), 100,
            Entry("train.weight_decay", "weight_decay", 0.01, "md4-cifar10"), 0.99,
            Entry("steps", "timesteps", 256, "md4-cifar10", paper=1000, words=("1,000 steps", "256")),
        ),
        Entry("data.flip", "train_transformations", "none but the cast to int32", "md4-input", False),
    ],
    "md4-imagenet64": [
        *_md4_entries(
            "md4-imagenet64", "downsampled_imagenet/64x64",
            [
                Entry("net.kind", "n_dit_layers", 20, "md4-imagenet64", "u-vit"),
                Entry("net.channels", "feature_dim", 256, "md4-imagenet64"),
                Entry(
                    "net.blocks", "n_layers", 8, "md4-imagenet64", paper=0, how="0 is 24, its comment's `for best likelihood`",
                    words=("24 and 12", "8 and 20"),
                ),
                Entry("net.layers", "n_dit_layers", 20, "md4-imagenet64", paper=12, words=("24 and 12", "8 and 20")),
                Entry("net.hidden", "dit_hidden_size", 768, "md4-imagenet64"),
                Entry("net.heads", "dit_num_heads", 12, "md4-imagenet64"),
            ],
            0.1, 2_000_000, 512, Entry("train.lr", "learning_rate", 2e-4, "md4-imagenet64"), 100,
            Entry("train.weight_decay", "weight_decay", 0.01, "md4-imagenet64", paper=0.03, words=("0.03", "0.01")), 0.99,
            Entry("steps", "timesteps", 256, "md4-imagenet64", paper=1000, words=("1,000 steps", "256")),
        ),
        Entry("data.flip", "train_transformations", "none but the cast to int32", "md4-input", False),
    ],
    "udlm-lm1b": [
        Entry("data.name", "data", "lm1b", "udlm"),
        Entry("data.pack", "data.wrap", False, "udlm", "document"),
        Entry("net.length", "model.length", 128, "udlm"),
        *_small("mdlm-model", 0.1),
        *_lightning("udlm-config"),
        Entry("options.time", "time_conditioning", True, "udlm"),
        Entry("steps", "sampling.steps", 128, "udlm"),
    ],
}  # fmt: skip


def _bd3lm(name: str, data: Entry, length: int, first: bool) -> list[Entry]:
    script = f"bd3lm-{name}"
    stage = [
        Entry("train.steps", "Checkpoints", "850K gradient updates", "bd3lm-readme", 850_000),
        Entry("options.block", "block_size", "as long as a row", "bd3lm-readme", length),
    ]
    if not first:
        stage = [
            Entry("train.steps", "trainer.max_steps, from_pretrained", "1,000,000 from step 850,000", script, 150_000),
            Entry("options.search", "algo.var_min", True, "bd3lm-algo"),
            Entry("options.resample", "training.resample", True, script),
        ]
    return [
        data, *_small("bd3lm-model", 0.1), Entry("net.length", "model.length", length, script),
        *(entry for entry in _lightning("bd3lm") if entry.ours != "train.steps"), *stage,
        Entry("drawing.block_sampler", "sampling.first_hitting", True, "bd3lm", "first_hitting"),
        Entry("steps", "algo.T of var_len", 5000, "bd3lm-readme"),
    ]  # fmt: skip


for _data, _length, _entry in (
    ("owt", 1024, Entry("data.name", "data", "openwebtext-split", "bd3lm-owt", "openwebtext")),
    ("lm1b", 128, Entry("data.pack", "wrap", True, "bd3lm-data", "wrap")),
):
    PUBLISHED[f"bd3lm-{_data}-pretrain"] = _bd3lm(_data, _entry, _length, True)
    PUBLISHED[f"bd3lm-{_data}"] = _bd3lm(_data, _entry, _length, False)


# ---------------------------------------------------------------------------------- those that are others but for a few choices
def _like(name: str, base: str, *entries: Entry, without: tuple[str, ...] = ()) -> None:
    """Another recipe's entries but for those about the same choices; without: the choices that it has not."""
    changed = {entry.ours for entry in entries} | {*without}
    PUBLISHED[name] = [*(entry for entry in PUBLISHED[base] if entry.ours not in changed), *entries]


def _paper(ours: str, section: str, value: Any, here: Any = None) -> Entry:
    """A value that stands in the paper alone."""
    return Entry(ours, section, value, PAPER, here)


def _medium(file: str) -> tuple[Entry, ...]:
    return (
        Entry("net.layers", "n_blocks", 24, file), Entry("net.hidden", "hidden_size", 1024, file),
        Entry("net.heads", "n_heads", 16, file),
    )  # fmt: skip


_NO_CLIP = Entry("train.clip", "none is given for it", "a choice of ours", PAPER, 1.0)
_NOISE = ("options.process", "options.auxiliary", "options.diffusion_steps")
_UNIFORM_TEXT = (
    _paper("options.process", "section 5.1", "uniform"),
    _paper("options.schedule", "section 5.1", "cosine"),
)
_VB = _paper("options.auxiliary", "tables 1 to 5", "L_vb alone", 0.0)
for _name in ("text8", "lm1b"):
    _base = f"d3pm-{_name}"
    _like(f"{_base}-uniform", _base, *_UNIFORM_TEXT, _VB)
    _like(f"{_base}-nearest", _base, _paper("options.process", "section 5.1", "NN", "nearest"), _VB)
    _like(f"{_base}-ar", _base, _NO_CLIP, without=_NOISE)
_like("d3pm-text8-vb", "d3pm-text8", _VB)
_like("d3pm-text8-uniform-hybrid", "d3pm-text8", *_UNIFORM_TEXT)
_like(
    "d3pm-text8-absorbing-nearest",
    "d3pm-text8",
    _paper("options.process", "table 5", "absorbing + NN", "absorbing-nearest"),
)
_SIX = _paper("net.layers", "table 6", "6 layers", 6)
_like("d3pm-text8-uniform-small", "d3pm-text8-uniform", _SIX)
_like(
    "d3pm-text8-uniform-small-mi", "d3pm-text8-uniform", _SIX,
    _paper("options.schedule", "table 6", "mutual info", "mutual-information"),
)  # fmt: skip
_like(
    "d3pm-text8-uniform-small-even",
    "d3pm-text8-uniform",
    _SIX,
    _paper("options.schedule", "table 6", "1/(T - t + 1)", "even"),
)
_like(
    "d3pm-cifar10-uniform-linear", "d3pm-cifar10-uniform",
    _paper("options.schedule", "table 4", "beta from 0.02 to 1", "linear-to-one"),
)  # fmt: skip
_RESIDUAL = Entry("options.head", "UNet's logits", "x_onehot + h", "d3pm-images-model", "residual")
_like("d3pm-cifar10-absorbing-vb", "d3pm-cifar10-absorbing", _paper("options.auxiliary", "table 3", "L_vb alone", 0.0))
_like("d3pm-cifar10-gauss-logits", "d3pm-cifar10-gauss", _RESIDUAL)
_like(
    "d3pm-cifar10-gauss-logits-vb", "d3pm-cifar10-gauss", _RESIDUAL,
    _paper("options.auxiliary", "table 3", "L_vb alone", 0.0),
)  # fmt: skip

_GEOMETRIC = (
    Entry("options.process", "graph.type of SEDD uniform", "uniform", "sedd-readme"),
    Entry("options.schedule", "noise.type of SEDD uniform", "geometric", "sedd-readme"),
    Entry("options.sigma_min", "noise.sigma_min", 1e-4, "sedd", paper=1e-5, words=("1e-5", "1e-4")),
)
_UNSCALED = _paper("options.scale_by_sigma", "RADD, table 1", "unscaled", False)
_like("sedd-owt-uniform", "sedd-owt", *_GEOMETRIC)
_like("sedd-owt-medium", "sedd-owt", *_medium("sedd-medium"))
_like("sedd-owt-uniform-medium", "sedd-owt-uniform", *_medium("sedd-medium"))
_like("sedd-owt-unscaled", "sedd-owt", _UNSCALED)
_like("sedd-owt-medium-unscaled", "sedd-owt-medium", _UNSCALED)
for _name, _length, _data, _steps in (
    (
        "text8", 256,
        (_paper("data.name", "5.2.1", "text8"), _paper("data.crop", "5.1", "contiguous subsequences at random", True)),
        _paper("train.steps", "none is given; D3PM's", 1_000_000),
    ),
    (
        "lm1b", 128, (_paper("data.name", "5.2.2", "One Billion Words", "lm1b"), _paper("data.pack", "5.1", "packed", "wrap")),
        _paper("train.steps", "none is given; MDLM's table 1", "33B tokens, half of those that pass", 1_000_000),
    ),
):  # fmt: skip
    _like(
        f"sedd-{_name}", "sedd-owt", *_data, _steps, _paper("net.length", "D3PM, section 5", _length),
        Entry("train.clip", "optim.grad_clip", 1.0, "sedd", 1.0 / _length, "/ L: its loss is summed over the tokens (losses.py)"),
    )  # fmt: skip
    _like(f"sedd-{_name}-uniform", f"sedd-{_name}", *_GEOMETRIC)
_like("sedd-lm1b-ar", "sedd-lm1b", _NO_CLIP, without=("options.process", "options.schedule"))

_MILLION = Entry("train.steps", "training.n_iters", 1_000_001, "radd", 1_000_000, "table 7 has 1,000k iterations")
_like("radd-owt-medium", "radd-owt", *_medium("radd-medium"))
_like("radd-owt-1m", "radd-owt", _MILLION)
for _name, _loss, _key in (("dse", "t-dse", "DSE"), ("t-dce", "t-dce", "t-DCE"), ("ao", "k-dce", "any-order, eq. G.3")):
    _chosen = _paper("options.loss", "section 3.3", _key, _loss)
    _like(f"radd-owt-{_name}", "radd-owt", _chosen)
    _like(f"radd-owt-medium-{_name}", "radd-owt-medium", _chosen)
    _like(f"radd-owt-{_name}-1m", "radd-owt-1m", _chosen)
del PUBLISHED["radd-owt-dse-1m"]  # not in table 7

_HALF = Entry("train.steps", "trainer.max_steps", 1_000_000, "mdlm", paper=500_000, words=("half", "1,000,000"))
_MDLM_NOISE = ("options.schedule", "steps")
_like("mdlm-lm1b-327b", "mdlm-lm1b", _paper("train.steps", "section 5.1", "10M steps", 10_000_000))
_like("mdlm-lm1b-discrete", "mdlm-lm1b", _paper("options.diffusion_steps", "table 8", "T = 1000", 1000))
_like("mdlm-lm1b-no-carry-over", "mdlm-lm1b-discrete", _paper("options.carry_over", "table 8", "w/o carry-over", False))
_like(
    "mdlm-lm1b-no-subs", "mdlm-lm1b-no-carry-over", _paper("options.zero_masking", "table 8", "w/o zero masking", False)
)
_like("mdlm-lm1b-ar", "mdlm-lm1b", _HALF, without=_MDLM_NOISE)
_like("mdlm-lm1b-ar-327b", "mdlm-lm1b-ar", _paper("train.steps", "section 5.1", "half of 10M steps", 5_000_000))
_like("mdlm-owt-ar", "mdlm-owt", _HALF, without=_MDLM_NOISE)
_like(
    "mdlm-c4-bert", "mdlm-lm1b",
    _paper("data.name", "D.6", "C4", "c4"), _paper("data.pack", "D.6", "pad and truncate", "document"),
    _paper("net.length", "D.6", 128), _paper("train.steps", "D.6", "5k steps", 5000), _paper("train.batch", "D.6", 512),
    _paper("train.lr", "D.6", 5e-5), _paper("train.warmup", "D.6", 2500),
    _paper("train.betas", "D.6", "0.95 and 0.999", (0.95, 0.999)),
)  # fmt: skip
_like(
    "mdlm-owt-sedd", "mdlm-owt", Entry("net.length", "model.length", 1024, "mdlm-owt-sedd-script"),
    Entry("options.process", "parameterization", "sedd", "mdlm-owt-sedd-script", "absorbing"),
)  # fmt: skip

_MEDIUM_MD4 = (
    _paper("net.layers", "J.2", "as SEDD medium", 24), _paper("net.hidden", "J.2", "as SEDD medium", 1024),
    _paper("net.heads", "J.2", "as SEDD medium", 16),
)  # fmt: skip
_like("md4-owt-medium", "md4-owt", *_MEDIUM_MD4)
_like("md4-owt-sedd", "md4-owt", _paper("options.schedule", "SEDD, section 5.1", "log-linear", "loglinear"))
_EXPONENT = lambda file: Entry("options.exponent", "power_init", 1.0, file)  # noqa: E731
_like(
    "genmd4-text8", "md4-text8", Entry("train.lr", "learning_rate of sweep", 3e-4, "genmd4-text8"), _EXPONENT("genmd4-text8"),
    Entry("net.dropout", "dropout_rate of sweep", 0.05, "genmd4-text8"),
    Entry("train.weight_decay", "weight_decay of sweep", 0.03, "genmd4-text8"), without=("options.schedule",),
)  # fmt: skip
_like(
    "genmd4-owt", "md4-owt", Entry("train.lr", "learning_rate of sweep", 3e-4, "genmd4-owt"), _EXPONENT("genmd4-owt"),
    Entry("net.dropout", "dropout_rate of sweep", 0.02, "genmd4-owt"),
    Entry("train.weight_decay", "weight_decay of sweep", 0.03, "genmd4-owt"), without=("options.schedule",),
)  # fmt: skip
_like(
    "md4-cifar10-tauldr",
    "md4-cifar10",
    _paper("options.process", "section 7.2", "absorbing"),
    without=("options.schedule",),
)
_DEEP = (
    Entry("net.blocks", "n_layers", 8, "md4-imagenet64"), Entry("net.layers", "n_dit_layers", 20, "md4-imagenet64"),
    Entry("train.weight_decay", "weight_decay", 0.01, "md4-imagenet64", paper=0.03, words=()),
    Entry("steps", "timesteps", 256, "md4-imagenet64", paper=1000, words=()),
)  # fmt: skip
_COSINE = _paper("options.schedule", "J.4", "cosine")
_like("md4-imagenet64-samples-linear", "md4-imagenet64", *_DEEP)
_like("md4-imagenet64-samples", "md4-imagenet64", *_DEEP, _COSINE)
_like("md4-imagenet64-classes", "md4-imagenet64", *_DEEP, _COSINE, _paper("net.classes", "table 6", "ImageNet's classes", 1000),
      _paper("data.name", "J.4", "ImageNet, 64 x 64", "imagenet64"))  # fmt: skip
_GPT2 = {"small": (), "medium": (24, 1024, 16), "large": (36, 1280, 20)}
for _name, _sizes in _GPT2.items():
    _net = tuple(
        _paper(f"net.{part}", "J.3", f"as GPT-2 {_name}", size)
        for part, size in zip(("layers", "hidden", "heads"), _sizes)
    )
    _like(
        f"md4-fineweb-{_name}",
        "md4-owt",
        Entry("data.name", "dataset", "fineweb_edu", "md4-fineweb", "fineweb-edu"),
        *_net,
    )
    _like(f"md4-fineweb-ar-{_name}", f"md4-fineweb-{_name}", without=("options.schedule", "steps"))

for _name in ("owt", "lm1b"):
    for _block in (8, 16):
        _like(
            f"bd3lm-{_name}-{_block}",
            f"bd3lm-{_name}",
            _paper("options.block", "tables 3 and 4", f"L' = {_block}", _block),
        )
_NO_BLOCKS = ("options.block", "drawing.block_sampler", "steps")
_WHOLE = Entry("train.steps", "trainer.max_steps", 1_000_000, "bd3lm")
_like(
    "bd3lm-lm1b-ar",
    "bd3lm-lm1b-pretrain",
    _WHOLE,
    Entry("net.length", "model.length", 128, "bd3lm-lm1b-ar"),
    without=_NO_BLOCKS,
)
_16B = _paper("train.steps", "section 4.2", "16B tokens", 250_000)
_like("bd3lm-lm1b-ar-16b", "bd3lm-lm1b-ar", _16B)
_like(
    "bd3lm-lm1b-ar-16b-random-batch",
    "bd3lm-lm1b-ar-16b",
    _paper("options.token_share", "table 1", "random batch size", 0.5),
)
_like(
    "bd3lm-lm1b-sedd", "bd3lm-lm1b-pretrain", _WHOLE, Entry("net.length", "model.length", 128, "bd3lm-lm1b-sedd"),
    without=_NO_BLOCKS,
)  # fmt: skip
_like("bd3lm-lm1b-1", "bd3lm-lm1b-pretrain", _16B, _paper("options.block", "table 1", "L' = 1", 1))
_like("bd3lm-lm1b-1-masked", "bd3lm-lm1b-1", _paper("options.clip", "section 4.2", "fully masked", (0.999, 1.0)))
_BY_HAND = ("options.search", "options.resample")
for _block in (128, 16, 4):
    _part = _paper("options.block", "table 2", f"L' = {_block}", _block)
    for _name, _ends in {"0-50": (0.0, 0.5), "30-80": (0.3, 0.8), "50-100": (0.5, 1.0), "0-100": (0.0, 1.0)}.items():
        _like(
            f"bd3lm-lm1b-{_block}-clip-{_name}", "bd3lm-lm1b", _part, _paper("options.clip", "table 2", f"U{[*_ends]}", _ends),
            _paper("train.steps", "table 2", "10B tokens", 152_588), without=_BY_HAND,
        )  # fmt: skip
_SHORT = {
    "45-95": ("clip", (0.45, 0.95)), "30-80": ("clip", (0.3, 0.8)), "linear": ("schedule", "loglinear"),
    "logarithmic": ("schedule", "logarithmic"), "square-root": ("schedule", "square-root"), "square": ("schedule", "square"),
    "cosine": ("schedule", "cosine-power"),
}  # fmt: skip
for _block, _names in {
    4: ("45-95", "30-80", "linear", "logarithmic", "square-root"), 16: ("45-95", "30-80", "linear", "square", "cosine")
}.items():  # fmt: skip
    _part = _paper("options.block", "table 8", f"L' = {_block}", _block)
    for _name in _names:
        _ours, _value = _SHORT[_name]
        _like(
            f"bd3lm-lm1b-{_block}-short-{_name}", "bd3lm-lm1b", _part, _paper(f"options.{_ours}", "table 8", _name, _value),
            _paper("train.steps", "table 8", "3B tokens", 45_776), without=_BY_HAND,
        )  # fmt: skip


# ---------------------------------------------------------------------------------- beside the recipes
def said(recipe: Recipe, ours: str) -> Any:
    """What a recipe says of a choice: `train.lr`, `options.block`, `drawing.corrector`, `steps`."""
    section, _, name = ours.partition(".")
    if not name:
        return getattr(recipe, section)
    return dict(recipe.drawing).get(name) if section == "drawing" else getattr(getattr(recipe.config, section), name)


def disagreements(recipe: Recipe, entries: list[Entry]) -> list[str]:
    """Where a recipe says another value than its entries, or a contradiction of paper and file that it does not name."""
    wrong = [
        f"{entry.ours} is {said(recipe, entry.ours)!r}; {entry.wanted!r} by {entry.key} = {entry.value!r}"
        for entry in entries
        if not _equal(said(recipe, entry.ours), entry.wanted)
    ]
    return wrong + [
        f"no difference has {word!r}, of {entry.ours}"
        for entry in entries
        for word in entry.words
        if not any(word in text for text in recipe.differs)
    ]


def _equal(ours: Any, wanted: Any) -> bool:
    if isinstance(ours, float) or (isinstance(wanted, float) and isinstance(ours, int)):
        return isinstance(wanted, (int, float)) and math.isclose(ours, wanted, rel_tol=1e-12)
    return ours == wanted


def unstated(recipe: Recipe, entries: list[Entry]) -> list[str]:
    """The numbers of a recipe's training that no entry is about: all but when something is written or validated."""
    stated = {entry.ours for entry in entries}
    return [name for name in NUMBERS if name not in stated]


NUMBERS = [
    f"train.{name}" for name in ("steps", "batch", "lr", "warmup", "decay", "weight_decay", "betas", "clip", "ema")
] + ["net.dropout"]


def table(recipe: Recipe, entries: list[Entry]) -> str:
    """The entries of a recipe as Markdown."""
    rows = [f"| {' | '.join(_cells(recipe, entry))} |\n" for entry in entries]
    return "".join(["| here | value | published | where |\n|---|---|---|---|\n", *rows])


def _cells(recipe: Recipe, entry: Entry) -> list[str]:
    ours = said(recipe, entry.ours)
    shown = f"{ours:.6g}" if isinstance(ours, float) else str(ours)
    if entry.file == PAPER:
        return [f"`{entry.ours}`", shown, str(entry.value), f"the paper, {entry.key}"]
    here = f"`{entry.key}` = {entry.value}" + (f"; {entry.how}" if entry.how else "")
    here += "; the paper says otherwise, see above" if entry.paper is not None else ""
    return [f"`{entry.ours}`", shown, here, f"[{entry.file}](#files)"]


def files() -> str:
    """The list of the files, as Markdown."""
    rows = [f"| {name} | {file.repository} | `{file.path}` | {_at(file)} |\n" for name, file in FILES.items()]
    return "".join(["| | repository | file | read at |\n|---|---|---|---|\n", *rows])


def _at(file: File) -> str:
    return file.commit[:8] + (f", in the copy {file.fork}" if file.fork else "")
