"""Planted errors in GIDD."""

from .mutant import Mutant as M

G = "methods/gidd.py"

GIDD = [
    M("alpha without its normaliser", G, "return (1 - u) / (1 + c)", "return 1 - u", "process.forward"),
    M(
        "the slope of alpha without that of the uniform noise",
        G,
        "return -pace * (1 + c + (1 - u) * slope) / (1 + c) ** 2",
        "return -pace * (1 + c) / (1 + c) ** 2",
        "process.forward",
    ),
    M(
        "the uniform noise has no power of gamma / 2",
        G,
        "return u, self.B * within ** (self.gamma / 2),",
        "return u, self.B * within ** self.gamma,",
        "process.forward",
    ),
    M(
        "uniform noise is the mask's, too",
        G,
        "inside = (u * self.prior + c / (self.K - 1) * self.clean) / (1 + c)",
        "inside = (u * self.prior + c / self.K) / (1 + c)",
        "bound.limit gidd",
    ),
    M(
        "a step adds all the noise at its end",
        G,
        "return a, self.noise(t) - a * self.noise(s)",
        "return a, self.noise(t)",
        "process.semigroup",
    ),
    M(
        "the rates of tokens without the change of the mixture",
        G,
        "(self.schedule.gamma / 2 / u + 1 - self.schedule.gamma)",
        "(self.schedule.gamma / 2 / u)",
        "bound.limit gidd",
    ),
    M(
        "the rates have no normaliser",
        G,
        "/ ((1 + c) * (1 - u))  # large numbers",
        "/ (1 - u)  # large numbers",
        "bound.limit gidd",
    ),
    M(
        "a push forgets the total",
        G,
        "return a * v + v.sum(-1, keepdim=True) * added",
        "return a * v + added",
        "bound.limit gidd",
    ),
    M(
        "an un-push forgets the total",
        G,
        "return (v - v.sum(-1, keepdim=True) * added) / a",
        "return (v - added) / a",
        "bound.convert gidd",
    ),
    M(
        "noise is drawn with the mask too seldom",
        G,
        "return torch.where(random.bernoulli(masked, generator), self.blank, x)",
        "return torch.where(random.bernoulli(masked**2, generator), self.blank, x)",
        "draws.noise",
    ),
    M(
        "the network gives probability to the mask",
        G,
        "self.process.without_mask(logits).softmax(-1)",
        "logits.softmax(-1)",
        "prediction.clean gidd",
    ),
    M(
        "the weight of the bound without q",
        G,
        "return rho.gather(-1, x_t[..., None])[..., 0] / here",
        "return rho.gather(-1, x_t[..., None])[..., 0]",
        "bound.closed-form gidd",
    ),
    M(
        "the divergence without Itakura and Saito's",
        G,
        "return maths.kl(q, q_mu) + maths.score_entropy(torch.ones_like(here), here / here_mu)  # p/q - log(p/q) - 1",
        "return maths.kl(q, q_mu)",
        "bound.closed-form gidd",
    ),
    M(
        "dynamic weights have the log SNR upside down",
        G,
        "right = B / (K - 1) * (t / (1 - t)) ** 0.5",
        "right = B / (K - 1) * ((1 - t) / t) ** 0.5",
        "bound.weights gidd",
    ),
    M(
        "clipped weights are not clipped",
        G,
        "return self.weight(x_0, x_t, t).clamp_max(MAX_WEIGHT)",
        "return self.weight(x_0, x_t, t)",
        "bound.weights gidd",
    ),
]
