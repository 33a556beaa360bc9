"""Random bits by counting: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").

Each draw is a function of a key and a counter, so that there is no state, and the same on every device.
"""

from torch import Tensor

WORD = 0xFFFFFFFF
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Four words of 32 random bits for each counter: words (*) int64 in [0, 2^32) that broadcast, a key of two such words."""
    a, b, c, d = counter
    k, l = key
    for _ in range(10):
        low, high = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]  # modulo 2^64, whose sign does not matter
        a, b, c, d = (high >> 32 & WORD) ^ b ^ k, high & WORD, (low >> 32 & WORD) ^ d ^ l, low & WORD
        k, l = k + _WEYL[0] & WORD, l + _WEYL[1] & WORD
    return a, b, c, d


def uniforms(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> Tensor:
    """Uniforms in [0, 1) with 53 random bits, (*) float64."""
    high, low, _, _ = philox(counter, key)
    return ((high >> 5 << 26) + (low >> 6)).double() * 2.0**-53
