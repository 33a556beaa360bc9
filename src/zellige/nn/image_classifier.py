"""A small convolutional classifier of images: its last hidden layer is a feature space in which images are compared."""

from torch import Tensor, nn


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
        layers = [(each, nn.BatchNorm2d(each.out_channels), nn.ReLU()) for each in convolutions]
        self.trunk = nn.Sequential(*(layer for each in layers for layer in each))
        last = nn.Linear(64 * 16, width), nn.BatchNorm1d(width, affine=False)
        self.features = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), *last)
        self.output = nn.Sequential(nn.ReLU(), nn.Linear(width, classes))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.features(self.trunk(images))
        return features, self.output(features)
