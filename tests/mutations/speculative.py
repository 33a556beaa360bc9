"""Planted errors in self-speculative sampling: the sampler, its likelihood, its causal head."""

from .mutant import Mutant as M

SP, NH = "samplers/speculative.py", "nn/speculative.py"
CHECK = "decoders.speculative"

SPECULATIVE = [
    M(
        "a draft is accepted as often as the head finds it likely",
        SP,
        "ratio = target.gather(-1, token) / draft.gather(-1, token)",
        "ratio = target.gather(-1, token)",
        CHECK,
    ),
    M(
        "a rejected draft is replaced by a token of the head, not of what it lacks",
        SP,
        "residual = (target - draft).clamp_min(0)[here[unverified]]",
        "residual = target[here[unverified]]",
        CHECK,
    ),
    M(
        "a rejected draft is replaced by what the draft has too much",
        SP,
        "residual = (target - draft).clamp_min(0)[here[unverified]]",
        "residual = (draft - target).clamp_min(0)[here[unverified]]",
        CHECK,
    ),
    M(
        "drafts behind a replaced token are kept",
        SP,
        "final = torch.minimum(first + 1, size)",
        "final = size",
        CHECK,
    ),
    M(
        "the last rejected draft of a pass is replaced, and those before it stay",
        SP,
        "first = torch.where(rejected, turn, size[:, None]).amin(-1)",
        "first = torch.where(rejected, turn, -1).amax(-1).where(rejected.any(-1), size)",
        CHECK,
    ),
    M(
        "a pass drafts one token more than its window",
        SP,
        "return masks.clamp_max(self.window)",
        "return masks.clamp_max(self.window + 1)",
        CHECK,
    ),
    M(
        "the likelihood forgets the passes that end with a replaced token",
        SP,
        "ended = torch.where(inside, replaced[:, -1], -math.inf)",
        "ended = torch.full_like(replaced[:, -1], -math.inf)",
        CHECK,
    ),
    M(
        "the likelihood counts an accepted draft by the head alone",
        SP,
        "torch.minimum(p, q).log()",
        "q.log()",
        CHECK,
    ),
    M(
        "the head sees the token that it predicts",
        NH,
        "visible = turn[:, None, :] < turn[:, :, None]",
        "visible = turn[:, None, :] <= turn[:, :, None]",
        "decoders.speculative-head",
    ),
    M(
        "the head's convolution reads neighbours of later turns",
        NH,
        "earlier = turns[:, d : d + L] < turn",
        "earlier = turns[:, d : d + L] < L",
        "decoders.speculative-head",
    ),
    M(
        "an MLP changes the first token of a pass",
        NH,
        "return torch.where(visible.any(-1, keepdim=True), y, h)",
        "return y",
        "decoders.speculative-head",
    ),
    M(
        "the drafts of the texts of a batch are those of the first",
        SP,
        "self.method.verifier(self.h[wanted], x[rows], self.turn[rows])",
        "self.method.verifier(self.h[wanted], x[rows[:1]].expand(len(rows), -1), self.turn[rows])",
        CHECK,
    ),
    M(
        "a new head's convolution starts at zero",
        NH,
        "nn.init.normal_(self.neighbours, std=2 / math.sqrt(conv))",
        "nn.init.zeros_(self.neighbours)",
        why="verify's heads have numbers of their own",
        tests="tests/samplers/test_speculative.py",
        outside="how well a head learns, not what is sampled with it",
    ),
    M(
        "the MLP of a head does not read the neighbours",
        NH,
        "y = y + self.mlp(self.norm2(y + beside))",
        "y = y + self.mlp(self.norm2(y))",
        why="any causal head is a right one",
        tests="tests/samplers/test_speculative.py",
        outside="how well a head learns, not what is sampled with it",
    ),
]
