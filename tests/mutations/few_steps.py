"""Planted errors in what is sampled in few steps: the losses of distillation, the paths and mixtures that they learn from."""

from .mutant import Mutant as M

DI, MA = "samplers/distillation.py", "core/maths.py"
AN, GA = "samplers/ancestral.py", "core/gaussian.py"
SDTT, DIVERGENCES = "few-steps.sdtt", "few-steps.divergences"
PATHS, CONSISTENCY, MIXTURE = "few-steps.paths", "few-steps.consistency", "few-steps.mixture"

FEW_STEPS = [
    M(
        "SDTT: a goal is the teacher's first prediction, not the one that reveals the position",
        DI,
        "goal[left[masks]] = p",
        "goal[left[masks]] = p if x is x_t else goal[left[masks]]",
        SDTT,
    ),
    M(
        "SDTT: predictions of later steps go to the first masks, not to those that are left",
        DI,
        "goal[left[masks]] = p",
        "goal[: len(p)] = p",
        SDTT,
    ),
    M(
        "SDTT: a step of the teacher reveals as many masks as if it began at its end",
        DI,
        "reveal = (alpha_s - alpha_t) / (1 - alpha_t)  # MDLM eq. 8",
        "reveal = (alpha_s - alpha_t) / (1 - alpha_s).clamp_min(1e-9)",
        SDTT,
    ),
    M(
        "SDTT: the teacher's steps do not see the tokens that it has revealed",
        DI,
        "p = clean_posterior(teacher, batch, x, t, left)",
        "p = clean_posterior(teacher, batch, x_t, t, left)",
        SDTT,
    ),
    M(
        "SDTT: the teacher is told the time of x_t in all of its steps",
        DI,
        "p = clean_posterior(teacher, batch, x, t, left)",
        "p = clean_posterior(teacher, batch, x, times[:, :1], left)",
        SDTT,
    ),
    M(
        "SDTT: the student is told the time after the teacher's steps",
        DI,
        "p = clean_posterior(student, batch, x_t, t, masks)",
        "p = clean_posterior(student, batch, x_t, times[:, -1:].clamp_min(0.0), masks)",
        SDTT,
    ),
    M(
        "SDTT: the loss is of the positions that the steps have revealed alone",
        DI,
        "    goal, _ = goals(teacher, batch, x_t, times, generator)\n    masks = student.process.movable(x_t) & batch.counted\n",
        "    goal, z = goals(teacher, batch, x_t, times, generator)\n    masks = student.process.movable(x_t) & batch.counted\n"
        "    goal = goal * ~student.process.movable(z)[masks][:, None]\n",
        SDTT,
    ),
    M(
        "SDTT: x_t is noised to the time after the teacher's first step",
        DI,
        "x_t = student.corrupt(batch, t, generator)\n    goal",
        "x_t = student.corrupt(batch, times[:, 1:2], generator)\n    goal",
        SDTT,
    ),
    M(
        "kl from teacher to student is the one from student to teacher",
        MA,
        '"kl": lambda teacher, student: (xlogy(teacher, teacher) - teacher * log(student)).sum(-1)',
        '"kl": lambda student, teacher: (xlogy(teacher, teacher) - teacher * log(student)).sum(-1)',
        DIVERGENCES,
    ),
    M(
        "the total variation of a student is twice what it is",
        MA,
        '"tvd": lambda teacher, student: (teacher - student).abs().sum(-1) / 2',
        '"tvd": lambda teacher, student: (teacher - student).abs().sum(-1)',
        DIVERGENCES,
    ),
    M(
        "mse of a student is one of probabilities, not of their logarithms",
        MA,
        '"mse": lambda teacher, student: (log(teacher) - log(student)).square().mean(-1)',
        '"mse": lambda teacher, student: (teacher - student).square().mean(-1)',
        DIVERGENCES,
    ),
    M(
        "the loss of a student whose probability has rounded to 0 is infinite",
        MA,
        "return p.clamp_min(torch.finfo(torch.float32).tiny).log()",
        "return p.log()",
        DIVERGENCES,
    ),
    M(
        "a path leaves x_0 whatever the noise of x_0's own entry is",
        GA,
        "return others.values - noise.gather(-1, x_0[..., None])[..., 0], others.indices",
        "return others.values, others.indices",
        PATHS,
    ),
    M(
        "a path is back at x_0 behind where it left it",
        GA,
        "torch.where(left > 0, other, x_0), torch.where(left > 1, other, x_0)",
        "torch.where(left == 1, other, x_0), torch.where(left > 1, other, x_0)",
        PATHS,
    ),
    M(
        "tokens of a path leave x_0 as often as they are noised, those that are noised to x_0 too",
        GA,
        "p_t, p_s = (((1 + (K - 1) * alpha.double()) / K).expand(x_0.shape) for alpha in (alpha_t, alpha_s))",
        "p_t, p_s = (alpha.double().expand(x_0.shape) for alpha in (alpha_t, alpha_s))",
        PATHS,
    ),
    M(
        "consistency: the teacher reads the student's token",
        DI,
        "goal = _given_others(teacher, batch, x_s, s)",
        "goal = _given_others(teacher, batch, x_t, s)",
        CONSISTENCY,
    ),
    M(
        "consistency: the teacher is told the student's time",
        DI,
        "goal = _given_others(teacher, batch, x_s, s)",
        "goal = _given_others(teacher, batch, x_s, t)",
        CONSISTENCY,
    ),
    M(
        "consistency: the teacher's distribution is p(x_0 | x_s), which its own token changes",
        DI,
        "goal = _given_others(teacher, batch, x_s, s)",
        "goal = posterior(teacher.predict(x_s, s)).double()",
        CONSISTENCY,
    ),
    M(
        "consistency: only positions whose token has changed count",
        DI,
        "return torch.where(batch.counted, apart, 0.0)",
        "return torch.where(batch.counted & (x_t != x_s), apart, 0.0)",
        CONSISTENCY,
    ),
    M(
        "a mixture always draws its first latent",
        AN,
        "random.categorical(even, generator))",
        "random.categorical(even, generator) * 0)",
        MIXTURE,
    ),
    M(
        "a mixture draws its first latents more often",
        AN,
        "even = torch.ones(len(state.x), method.latents, dtype=torch.float64, device=state.x.device)",
        "even = torch.ones(len(state.x), method.latents, dtype=torch.float64, device=state.x.device).cumsum(-1)",
        MIXTURE,
    ),
    M(
        "the loss of a mixture is a mean of logarithms",
        DI,
        "return math.log(student.latents) - torch.stack(log_p).logsumexp(0)",
        "return -torch.stack(log_p).mean(0)",
        MIXTURE,
    ),
    M(
        "the loss of a mixture is a sum over its latents",
        DI,
        "return math.log(student.latents) - torch.stack(log_p).logsumexp(0)",
        "return -torch.stack(log_p).logsumexp(0)",
        MIXTURE,
    ),
    M(
        "the loss of a mixture mixes each position by itself",
        DI,
        "        log_p.append(where.sum(maths.log(p.gather(-1, tokens)[:, 0])))\n"
        "    return math.log(student.latents) - torch.stack(log_p).logsumexp(0)",
        "        log_p.append(maths.log(p.gather(-1, tokens)[:, 0]))\n"
        "    return -where.sum(torch.stack(log_p).logsumexp(0) - math.log(student.latents))",
        MIXTURE,
    ),
    M(
        "a student with a latent learns where the teacher's first step ends",
        DI,
        "t, s = times[:, :1], times[:, -1:]",
        "t, s = times[:, :1], times[:, 1:2]",
        MIXTURE,
    ),
    M(
        "a table with a latent reads the numbers of the next value",
        "nn/table.py",
        "(x * self.place).sum(-1) + self.states**self.length * condition]",
        "(x * self.place).sum(-1) + self.states**self.length * ((condition + 1) % self.latents) * (condition > 0)]",
        MIXTURE,
    ),
]
