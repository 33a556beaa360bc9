"""Planted errors where a method, its network and a sampler meet: what a class is, what is asked where, what is cut off when."""

from .mutant import Mutant as M

EM, AT, BK, UN = "nn/embedding.py", "nn/transformer.py", "nn/block.py", "nn/unet.py"
SK, SG, ST, SU = "samplers/predict.py", "samplers/guide.py", "samplers/tau_leaping.py", "samplers/uniformisation.py"
SA, SB, BL = "samplers/ancestral.py", "samplers/blockwise.py", "methods/bd3lm.py"

CONNECTIONS = [
    # ------------------------------------------------------------------------------ classes
    M(
        "a row without a class has class 0",
        EM,
        "table[condition % len(table)]",
        "table[condition.clamp_min(0)]",
        "networks.classes mdlm",
    ),
    M(
        "the class is forgotten beside a time",
        AT,
        "return c + vector, rows",
        "return 0 * c + vector, rows",
        "networks.classes udlm",
    ),
    M(
        "the classes of the clean stream are those of other rows",
        AT,
        "condition.repeat(2)",
        "condition.repeat_interleave(2)",
        "networks.classes bd3lm",
    ),
    # ------------------------------------------------------------------------------ the network reads its own prediction
    M(
        "the first prediction is read as logits",
        AT,
        "first = self.head(read(None, None)).softmax(-1)",
        "first = self.head(read(None, None))",
        "networks.self-condition mdlm",
    ),
    M(
        "a self-conditioned network draws a coin in evaluation, too",
        AT,
        "            if self.training:\n                first = first",
        "            if True:\n                first = first",
        "networks.self-condition mdlm",
    ),
    M(
        "the clean stream reads the estimate of the noisy one",
        AT,
        "torch.cat((beside, torch.zeros_like(beside)))",
        "torch.cat((beside, beside))",
        "networks.self-condition bd3lm",
    ),
    # ------------------------------------------------------------------------------ blocks of several sizes
    M(
        "a batch of mixed sizes is always read in blocks of the first size",
        BL,
        "block = sizes[int(len(sizes) * random.shared(generator))]",
        "block = sizes[int(0 * random.shared(generator))]",
        "blocks.mixed bd3lm",
    ),
    M(
        "the last of mixed sizes is never drawn",
        BL,
        "int(len(sizes) * random.shared(generator))",
        "int((len(sizes) - 1) * random.shared(generator))",
        "blocks.mixed bd3lm",
    ),
    M(
        "in blocks of another size the network reads those of its own",
        BL,
        "network.block, copied.config = block, replace",
        "_, copied.config = block, replace",
        "blocks.mixed bd3lm",
    ),
    M(
        "in blocks of another size the times are those of its own",
        BL,
        "replace(self.config, block=block, blocks=())",
        "replace(self.config, blocks=())",
        "blocks.mixed bd3lm",
    ),
    M(
        "each size of block learns weights of its own",
        BL,
        "network = copy_of(self.network)",
        "network = __import__('copy').deepcopy(self.network)",
        "blocks.mixed bd3lm",
    ),
    M(
        "blocks of one token are not known to be exact",
        BL,
        "copied.exact = self.by_counts and block == 1",
        "copied.exact = self.exact",
        why="verify asks no method for another size of block",
        tests="tests/methods/test_bd3lm.py -k mixed_sizes",
    ),
    M(
        "each rank draws a size of block of its own",
        "core/random.py",
        "uniform((1,), generator.generator if isinstance(generator, Shard) else generator, device)",
        "uniform((1,), generator, device)",
        "draws.parts",
    ),
    M(
        "a model of mixed sizes is loaded in the size that it was saved with",
        "models/model.py",
        "return replace(options, block=block)",
        "return options",
        why="verify loads no model",
        tests="tests/methods/test_bd3lm.py -k another_size",
    ),
    # ------------------------------------------------------------------------------ uniform noise in blocks
    M(
        "uniform noise in blocks has the mask among its tokens",
        BL,
        'return vocabulary + (config.process == "absorbing" and config.mask is None)',
        "return vocabulary + 1",
        "sampler.blockwise bd3lm",
    ),
    M(
        "a score in blocks is under masks, whatever the noise",
        BL,
        'process = uniform(states, schedule) if config.process == "uniform" else absorbing(states, schedule, mask)',
        "process = absorbing(states, schedule, mask)",
        why="of a noise that no variant has: its tests enumerate it",
        tests="tests/methods/test_bd3lm.py -k uniform_noise_in_blocks",
    ),
    M(
        "times of blocks that are drawn by importance weigh what is drawn evenly",
        "methods/diffusion.py",
        "return method.diffusion(batch, x_t, t, weight)",
        "return method.diffusion(batch, x_t, t)",
        why="only an evaluation that asks for it draws times by importance",
        tests="tests/methods/test_bd3lm.py -k uniform_noise_in_blocks",
    ),
    # ------------------------------------------------------------------------------ the masks alone
    M(
        "the last block's gate is that of the first positions",
        BK,
        "chosen(at, x, gate1, shift2, scale2, gate2)",
        "chosen(at, x, gate1 if at is None or gate1 is None or gate1.ndim < 3 else gate1.roll(1, 1), shift2, scale2, gate2)",
        "networks.masks bd3lm",
    ),
    M(
        "the masks read what was mixed at the positions before",
        BK,
        "at.of(values)",
        "at.of(values.roll(1, 1))",
        "networks.masks mdlm",
    ),
    M(
        "the norm at the end is modulated as elsewhere",
        AT,
        "modulate(self.norm, h, *chosen(at, shift, scale))",
        "modulate(self.norm, h, *chosen(at, shift.roll(1, 1) if at and shift.ndim > 2 else shift, scale))",
        "networks.masks bd3lm",
    ),
    # ------------------------------------------------------------------------------ U-Nets
    M(
        "a U-Net pads on the other side before it halves",
        UN,
        "(width % 2, 1, height % 2, 1)",
        "(1, width % 2, 1, height % 2)",
        "networks.unet",
    ),
    M(
        "what a U-Net kept stands before what comes up",
        UN,
        "torch.cat((h, skips.pop()), 1)",
        "torch.cat((skips.pop(), h), 1)",
        "networks.unet",
    ),
    M(
        "a causal convolution reads both sides",
        "nn/conv.py",
        "before = (kernel - 1 if causal else kernel // 2) * self.dilation",
        "before = kernel // 2 * self.dilation",
        "networks.convolution",
    ),
    M(
        "all convolutions read their neighbours",
        "nn/conv.py",
        "self.dilated = Dilated(D, kernel, 2 ** (layer % doublings))",
        "self.dilated = Dilated(D, kernel, 1)",
        "networks.convolution",
    ),
    M(
        "a convolution reads the document beside",
        "nn/conv.py",
        "* (documents[:, span] == document)[..., None]",
        "* (documents[:, span] >= 0)[..., None]",
        "networks.convolution",
    ),
    M(
        "a convolution's new positions are its oldest",
        "nn/conv.py",
        "seen.document)[:, -x.shape[1] :]",
        "seen.document)[:, : x.shape[1]]",
        "networks.convolution",
    ),
    M("a convolution without its gate", "nn/conv.py", " * F.silu(gate)", "", "networks.convolution"),
    M("a U-Net told a time forgets the class", UN, "else c + classes", "else c + 0 * classes", "networks.unet"),
    M(
        "levels from 0 to 1",
        UN,
        "values = 2 * x.to(self.input.weight.dtype) / max(self.states - 1, 1) - 1",
        "values = x.to(self.input.weight.dtype) / max(self.states - 1, 1)",
        "networks.unet",
    ),
    # ------------------------------------------------------------------------------ correctors inside a step
    M(
        "correctors at the time where the step began",
        ST,
        "state = self.correct(method, state, s, h, generator)",
        "state = self.correct(method, state, t, h, generator)",
        "sampler.tau_leaping-correctors udlm",
    ),
    M(
        "a corrector's size is that of the step",
        ST,
        "torch.where(on, self.corrector_step * (t - s), 0.0)",
        "torch.where(on, t - s, 0.0)",
        "sampler.tau_leaping-correctors mdlm",
    ),
    M(
        "correctors early and not late",
        ST,
        "on = (t <= self.corrector_from)",
        "on = (t >= self.corrector_from)",
        "sampler.tau_leaping-correctors mdlm",
    ),
    M(
        "one corrector however many are asked for",
        ST,
        "for _ in range(self.corrector):",
        "for _ in range(1):",
        "sampler.tau_leaping-correctors udlm",
    ),
    # ------------------------------------------------------------------------------ given positions of uniformisation
    M(
        "candidates at given positions",
        SU,
        "torch.where(free(method, subset), bound[subset.x], 0.0)",
        "bound[subset.x]",
        "sampler.uniformisation-infill-drawn udlm",
    ),
    M(
        "a jump at an end draws what is given",
        SU,
        "fixed=state.fixed | ~jump[:, None]",
        "fixed=~jump[:, None] & ~state.fixed",
        "sampler.uniformisation-infill-drawn udlm",
    ),
    # ------------------------------------------------------------------------------ truncation in blocks
    M(
        "a wrapper is lost at another length",
        SG,
        "copied.method = of_length(self.method, length)\n        return copied",
        "copied.method = of_length(self.method, length)\n        return copied.method",
        "sampler.guided-blocks bd3lm",
    ),
    M(
        "the method in a wrapper keeps its length",
        SG,
        "copied.method = of_length(self.method, length)",
        "copied.method = self.method",
        "sampler.guided-blocks bd3lm",
    ),
    # ------------------------------------------------------------------------------ evaluations expected with a prompt
    M(
        "expected evaluations as if nothing were given",
        SA,
        "return expected_evaluations((alpha[1:] - alpha[:-1]) / (1 - alpha[:-1]), free)",
        "return expected_evaluations((alpha[1:] - alpha[:-1]) / (1 - alpha[:-1]), method.shape[0])",
        "sampler.calls mdlm",
    ),
    M(
        "expected evaluations of blocks count a prompt as drawn",
        SB,
        "count = min(free - max(N - end, 0), min(end, N) - begin)",
        "count = min(end, N) - begin",
        "sampler.calls bd3lm",
    ),
    M(
        "a step that reveals nothing is expected to ask",
        SK,
        "return float((1 - (1 - mask_probability * reveal) ** free).sum())",
        "return float(len(reveal))",
        "sampler.calls md4",
    ),
]
