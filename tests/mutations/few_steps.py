"""Planted errors in what is sampled in few steps: the losses of distillation, the paths and mixtures that they learn from."""

from .mutant import Mutant as M

DI, MA = "samplers/distillation.py", "core/maths.py"
SDTT, DIVERGENCES = "few-steps.sdtt", "few-steps.divergences"

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
        '"kl": lambda teacher, student: (xlogy(teacher, teacher) - teacher * _log(student)).sum(-1)',
        '"kl": lambda student, teacher: (xlogy(teacher, teacher) - teacher * _log(student)).sum(-1)',
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
        '"mse": lambda teacher, student: (_log(teacher) - _log(student)).square().mean(-1)',
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
]
