"""A network that is told sigma = 0 for ever: what that says folded into its layer norms and sums, against modulating each time.

    python benchmarks/constant.py --threads 1 --clock cpu

MDLM-OWT's sizes, 12 x 768; hidden states of a batch, without the head. `modulated` is the same network, with the same weights,
told the time 0 for each row, as published code does; `none` has no adaptive norms at all.
"""

import dataclasses
import sys

import torch

import measure
from zellige.nn import DiT, Net


def main() -> int:
    parser = measure.options(__doc__ or "", rounds=9)
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--backward", action="store_true", help="forward and backward, as in fine-tuning")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    net = Net(chosen.layers, chosen.hidden, chosen.hidden // 64, chosen.length)
    modulated = DiT(net, 64, time=True).eval()
    for p in modulated.parameters():
        torch.nn.init.normal_(p, std=0.05)
    folded = DiT(dataclasses.replace(net, constant=True), 64).eval()
    folded.load_state_dict(modulated.state_dict())
    none = DiT(net, 64).eval()
    x = torch.randint(0, 64, (chosen.rows, chosen.length))
    zero = torch.zeros(chosen.rows)

    def call(network: DiT, *time: torch.Tensor):
        def run() -> None:
            with torch.set_grad_enabled(chosen.backward):
                h = network.features(x, *time)
            if chosen.backward:
                h.sum().backward()

        return run

    ways = {"modulated": call(modulated, zero), "folded": call(folded), "none": call(none)}
    with torch.no_grad():
        gap = float((modulated.features(x, zero) - folded.features(x)).abs().max())
    seconds = measure.alternate(ways, chosen.rounds, clock=chosen.clock)
    rows = []
    for name in ways:
        times = measure.compare(seconds, "modulated", name)
        middle = sorted(seconds[name])[len(seconds[name]) // 2]
        rows.append((name, f"{middle:.3f}", f"{times['times']:.3f}x ({times['low']:.3f}-{times['high']:.3f})"))
    measure.show(rows, ("", "seconds", "faster than modulated (quartiles)"))
    print(f"largest difference of a hidden state, modulated to folded: {gap:.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
