"""A classifier of texts, noisy or clean: a transformer's hidden states, their mean over the positions, a linear map.

The trunk is any network with `features`: that of a trained denoiser, to be fine-tuned or probed, or a DiT without an
end (`ends=False`), as the classifiers that UDLM (Schiff et al. 2024) is guided by are published. `ImageClassifier` is a
small convolutional network, whose last hidden layer is a feature space in which images are compared.
"""

from typing import Any

import torch
from torch import Tensor, nn


class Classifier(nn.Module):
    """Texts (B, L) -> logits (B, classes).

    Args:
        trunk: a network (see `nn.network`); its head is not used.
        hidden: D, the width of its hidden states.
        classes: how many there are.
    """

    def __init__(self, trunk: Any, hidden: int, classes: int):
        super().__init__()
        self.trunk, self.output = trunk, nn.Linear(hidden, classes)

    def embed(
        self, x: Tensor, time: Tensor | None = None, *, mask: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor:
        """The mean hidden state (B, D) of the positions of x (B, L) where `mask` (B, L) is True (None: all); `time` is
        for a time-conditioned trunk, segments (B, L) keep padding out of attention."""
        h = self.trunk.features(x, time, segments=segments)
        if mask is None:
            return h.mean(1)
        weights = mask[..., None].to(h.dtype)
        return (h * weights).sum(1) / weights.sum(1).clamp_min(1)

    def forward(self, x: Tensor, time: Tensor | None = None, **kwargs: Any) -> Tensor:
        """Logits (B, classes); arguments as in `embed`."""
        return self.output(self.embed(x, time, **kwargs))

    def slopes(self, x: Tensor, time: Tensor | None, label: Tensor) -> Tensor:
        """Gradient of log P(label | x), label (B,), in the one-hot tokens x (B, L): (B, L, K).
        The trunk has an `embedding`."""
        embedding, seen = self.trunk.embedding, list[Tensor]()

        def keep(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
            seen.append(output.detach().requires_grad_())
            return seen[0]

        hook = embedding.register_forward_hook(keep)
        try:
            with torch.enable_grad():
                log_p = self(x, time).log_softmax(-1).gather(-1, label[:, None]).sum()
                (gradient,) = torch.autograd.grad(log_p, seen[0])
        finally:
            hook.remove()
        return gradient @ embedding.weight.detach().mT


class ImageClassifier(nn.Module):
    """Images (B, C, H, W) of brightness 0 to 1 -> features (B, width), and logits (B, classes) linear in their ReLU.

    Each feature has mean 0 and variance 1 over the images of the training, about: so distances have a scale.

    Args:
        colours: C.
        classes: how many there are.
        width: of the features.
    """

    def __init__(self, colours: int, classes: int, width: int):
        super().__init__()
        convolutions = nn.Conv2d(colours, 32, 5, 2, 2), nn.Conv2d(32, 64, 3, 2, 1), nn.Conv2d(64, 64, 3, 1, 1)
        layers = [(convolution, nn.BatchNorm2d(convolution.out_channels), nn.ReLU()) for convolution in convolutions]
        self.trunk = nn.Sequential(*(layer for convolution in layers for layer in convolution))
        last = nn.Linear(64 * 16, width), nn.BatchNorm1d(width, affine=False)
        self.features = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), *last)
        self.output = nn.Sequential(nn.ReLU(), nn.Linear(width, classes))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.features(self.trunk(images))
        return features, self.output(features)
