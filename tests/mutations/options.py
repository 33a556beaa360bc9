"""Planted errors in options of the papers' tables: seeds, the variance of a loss, parts of SUBS, losses and networks."""

from .mutant import Mutant as M

C = "report/compare/"
SEEDS = "verify trains nothing"
B = "nn/block.py"

OPTIONS = [
    M(
        "several seeds: every run has the first seed",
        C + "comparison.py",
        "replace(train, seed=run.seed)",
        "replace(train, seed=train.seed)",
        why=SEEDS,
        tests="tests/report/test_compare.py -k runs_of_their_own",
    ),
    M(
        "several seeds: told apart by the texts alone",
        C + "comparison.py",
        "half = max(half, mean(",
        "half = min(half, mean(",
        why=SEEDS,
        tests="tests/report/test_compare.py -k narrower_than_that_over_seeds",
    ),
    M(
        "several seeds: the difference is not paired by seed",
        C + "comparison.py",
        "[b.value - a.value for a, b in zip(first, second)]",
        "[b.value - a.value for a, b in zip(first, second[1:] + second[:1])]",
        why=SEEDS,
        tests="tests/report/test_compare.py -k narrower_than_that_over_seeds",
    ),
    M(
        "several seeds: the deviation is that of the mean",
        C + "table.py",
        "numbers = (over.value, stdev(row.seeds),",
        "numbers = (over.value, stdev(row.seeds) / math.sqrt(len(row.seeds)),",
        why=SEEDS,
        tests="tests/report/test_compare.py -k runs_of_their_own",
    ),
    M(
        "several seeds: the bound of the first stands for all",
        C + "comparison.py",
        "if r.nats is not None]).mean(0)",
        "if r.nats is not None])[0]",
        why=SEEDS,
        tests="tests/report/test_compare.py -k runs_of_their_own",
    ),
    # ------------------------------------------------------------------------------ batches of random size
    M(
        "a random batch: the sum over what is drawn stands for the whole",
        "methods/ar.py",
        "return self._nll(batch, drawn) * (counted.sum() / drawn.sum().clamp_min(1)).double()",
        "return self._nll(batch, drawn)",
        "blocks.batch ar",
    ),
    M(
        "a random batch: given tokens are drawn, too",
        "methods/ar.py",
        "drawn = counted & random.bernoulli(share, generator)",
        "drawn = random.bernoulli(share, generator)",
        "blocks.batch ar",
    ),
    M(
        "a random batch: the share is that of the tokens left out",
        "methods/ar.py",
        "self.config.token_share, device",
        "1 - self.config.token_share, device",
        "blocks.batch ar",
    ),
    # ------------------------------------------------------------------------------ SwiGLU, dropout of channels
    M(
        "SwiGLU: the gate is the value",
        B,
        "return F.silu(gate) * value",
        "return gate * F.silu(value)",
        "networks.mlp",
    ),
    M(
        "SwiGLU: a sigmoid gates",
        B,
        "return F.silu(gate) * value",
        "return F.sigmoid(gate) * value",
        "networks.mlp",
    ),
    M(
        "SwiGLU: as wide as without a gate",
        B,
        "H = 32 * -(-8 * D // 96)",
        "H = 4 * D",
        "networks.mlp",
    ),
    M(
        "SwiGLU: the width is rounded down",
        B,
        "H = 32 * -(-8 * D // 96)",
        "H = 32 * (8 * D // 96)",
        "networks.mlp",
    ),
    M(
        "dropped channels are dropped at single positions",
        B,
        "positions = 1 if self.drop_channels else shape[1]",
        "positions = shape[1]",
        "networks.dropout",
    ),
    M(
        "dropped channels are those of all sequences",
        B,
        "kept = F.dropout(y.new_ones(shape[0], positions, shape[2]), self.dropout)",
        "kept = F.dropout(y.new_ones(1, positions, shape[2]), self.dropout)",
        "networks.dropout",
    ),
    # ------------------------------------------------------------------------------ independent times
    M(
        "independent times: groups of an example share one",
        "core/random.py",
        'each example that have a position.\n    """\n    if isinstance(generator, Independent):',
        'each example that have a position.\n    """\n    if False:',
        "draws.parts",
    ),
    M(
        "independent times: examples share one",
        "core/counting.py",
        "return self.uniform((n,), device)",
        "return self.uniform((1,), device).expand(n)",
        "draws.parts",
    ),
    M(
        "independent times: stratified all the same",
        "training/learner.py",
        "self.device, self.train_config.times)",
        "self.device)",
        why=SEEDS,
        tests="tests/training/test_train.py -k draws_its_times",
    ),
    # ------------------------------------------------------------------------------ a text, noised and denoised
    M(
        "reconstruct: from the prior, not from the text",
        "samplers/sampler.py",
        "torch.where(state.fixed, state.x, noisy)",
        "torch.where(state.fixed, noisy, state.x)",
        "sampler.reconstruct",
    ),
    M(
        "reconstruct: noise of the time after the first",
        "samplers/sampler.py",
        "noisy = method.corrupt(Batch(x_0, None if fixed is None else ~state.fixed), times[0], generator)",
        "noisy = method.corrupt(Batch(x_0, None if fixed is None else ~state.fixed), times[1], generator)",
        "sampler.reconstruct",
    ),
    M(
        "reconstruct: the steps before the noise are taken too",
        "samplers/sampler.py",
        "times[times < begin]))",
        "times[1:]))",
        "sampler.reconstruct",
    ),
    M(
        "reconstruct: a time between the model's own",
        "samplers/sampler.py",
        "begin = max(round(t * T), 1) / T if T else t",
        "begin = t",
        "sampler.reconstruct",
    ),
    M(
        "reconstruct: every sample begins with the first text",
        "models/trajectory.py",
        "self.begin[sample_numbers * len(self.begin) // self.count]",
        "self.begin[sample_numbers * 0]",
        why="verify draws no numbered samples",
        tests="tests/models/test_generate.py -k little_noise",
    ),
    # ------------------------------------------------------------------------------ the squared loss of scores
    M(
        "squared loss: of the logarithms",
        "methods/sedd.py",
        "torch.where(rates > 0, v - u, 0.0).square()",
        "torch.where(rates > 0, v.log() - u.log(), 0.0).square()",
        "bound.squared-loss sedd",
    ),
    M(
        "squared loss: the rates are left out",
        "methods/sedd.py",
        "return (rates * torch.where(",
        "return ((rates > 0) * torch.where(",
        "bound.squared-loss sedd",
    ),
    M(
        "squared loss: the rates out of x_t",
        "methods/sedd.py",
        "rates = self.process.rate_into(x_t, t)",
        "rates = self.process.rate(t)[torch.arange(len(x_t)), x_t].clamp_min(0.0)",
        "bound.squared-loss sedd",
    ),
    M(
        "squared loss: score entropy is drawn all the same",
        "methods/sedd.py",
        'if self.config.loss == "score-entropy":',
        "if True:",
        "bound.squared-loss sedd",
    ),
]
