"""A training told in one file, on public names of Zellige: data, method, network, optimizer, loop, validation, samples, saving.

    python examples/train.py                                      # a small model of Python's documentation
    python examples/train.py --path my.txt --method sedd --steps 10000 --out models/mine

`zellige.train` does the same in one call, and adds what a long run needs: checkpoints, several devices, logs, plans. This file is
for reading, and for copying where a training is to be another one. Shapes: B sequences, L positions.
"""

import argparse
import itertools
import math
import time
from collections.abc import Iterator

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader

import zellige
from zellige.data import collate, prepare
from zellige.methods import build, find


# ---------------------------------------------------------------------------------- what the loop needs
def batches(rows: torch.utils.data.Dataset, size: int, seed: int) -> Iterator[zellige.Batch]:
    """Batches of rows for ever, shuffled anew in each epoch."""
    generator = torch.Generator().manual_seed(seed)
    whole = len(rows) >= size  # pyright: ignore[reportArgumentType]  (else each epoch is one smaller batch)
    loader = DataLoader(rows, size, shuffle=True, drop_last=whole, collate_fn=collate, generator=generator)
    return itertools.chain.from_iterable(itertools.repeat(loader))


def learning_rate(step: int, steps: int, peak: float, warmup: int) -> float:
    """It rises in `warmup` steps to its peak, then falls to 0 along a cosine."""
    rise = min(1.0, (step + 1) / warmup)
    return peak * rise * (1 + math.cos(math.pi * max(0, step - warmup) / max(1, steps - warmup))) / 2


def train(options: argparse.Namespace) -> zellige.Model:
    # Data: a text becomes tokens, and these rows of L, in three splits. What was made is kept in a cache.
    data = zellige.Data("text", path=options.path, tokenizer="characters") if options.path else zellige.Data("pydocs")
    corpus = prepare(data, options.length)
    tokenizer, device = corpus.tokenizer, torch.device(options.device)
    print(f"{corpus.train.tokens_total:,} tokens in {len(corpus.train):,} rows, {tokenizer.size} different")

    # Method and network: what the noise is, what the network's answer means, and the loss that follows. Any of `zellige.METHODS`.
    torch.manual_seed(options.seed)  # of the first weights
    net = zellige.Net(options.layers, options.hidden, options.heads, options.length, conv=7)
    choices = find(options.method).Config()
    method = build(options.method, tokenizer.size, net, choices).to(device)
    print(f"{options.method}, {sum(p.numel() for p in method.parameters()):,} parameters")

    # Optimizer: AdamW, with weight decay for matrices alone. A moving average of the weights is what is judged and kept.
    matrices = [p for p in method.parameters() if p.ndim > 1]
    vectors = [p for p in method.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], options.lr, (0.9, 0.99))
    averaged = AveragedModel(method, multi_avg_fn=get_ema_multi_avg_fn(options.ema))

    # A model is the averaged weights with their tokenizer, and the config from which `zellige.load` builds them again.
    settings = zellige.Train(
        steps=options.steps, batch=options.batch, lr=options.lr, ema=options.ema, seed=options.seed
    )
    config = zellige.Config(options.method, choices, data, net, settings)
    model = zellige.Model(averaged.module, tokenizer, config, about={"data": corpus.about})  # pyright: ignore[reportArgumentType]

    # The loop. `loss` is in nats per sequence: it draws times and noise from the generator, and evaluates the network.
    noise = torch.Generator(device).manual_seed(options.seed + 1)
    began, recent = time.monotonic(), []
    method.train()
    for step, batch in enumerate(itertools.islice(batches(corpus.train, options.batch, options.seed), options.steps)):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, options.steps, options.lr, options.warmup)
        batch = batch.to(device)
        loss = method.loss(batch, noise).sum() / batch.counted.sum()  # nats per token
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(method.parameters(), 1.0)
        optimizer.step()
        averaged.update_parameters(method)
        recent.append(float(loss.detach()))

        # Validation: the bound on -log p of held-out rows, with its 95% interval. Its noise has a seed of its own.
        if (step + 1) % options.validate_every == 0 or step + 1 == options.steps:
            estimator = "bound" if method.bounded else "loss"
            result = zellige.evaluate(model, corpus, "validation", draws=1, limit=options.rows, estimator=estimator)
            mean, seconds = sum(recent) / len(recent), time.monotonic() - began
            print(f"step {step + 1:,}   loss {mean:.3f} nats/token   validation {result}   {seconds:.0f} s", flush=True)
            recent.clear()

    # Samples: from noise to text, in as many steps as you like. A text depends on the seed and on its number alone.
    for text in zellige.sample(model, count=2, steps=options.sample_steps, seed=options.seed):
        print(f"\n{text}")

    # Saving: a folder with safetensors, config.json and the tokenizer, which `zellige.load` and every command take.
    model.about |= {"step": options.steps}
    print(f"\n{model.save(options.out)}")
    return model


def main(words: list[str] | None = None) -> zellige.Model:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--path", help="a text file (default: Python's own documentation)")
    ask.add_argument("--method", default="mdlm", help="a name of `zellige list methods` (default mdlm)")
    ask.add_argument("--out", default="models/example", help="folder of the model (default models/example)")
    ask.add_argument("--steps", type=int, default=2000, help="optimizer steps (default 2000)")
    ask.add_argument("--batch", type=int, default=16, help="sequences in a step (default 16)")
    ask.add_argument("--lr", type=float, default=3e-3, help="peak learning rate of AdamW (default 3e-3)")
    ask.add_argument("--warmup", type=int, default=200, help="steps in which it rises (default 200)")
    ask.add_argument("--ema", type=float, default=0.995, help="decay of the averaged weights (default 0.995)")
    ask.add_argument("--length", type=int, default=128, help="tokens in a sequence (default 128)")
    ask.add_argument("--layers", type=int, default=4, help="blocks of the network (default 4)")
    ask.add_argument("--hidden", type=int, default=128, help="its width (default 128)")
    ask.add_argument("--heads", type=int, default=4, help="attention heads (default 4)")
    ask.add_argument("--validate-every", type=int, default=500, help="steps between validations (default 500)")
    ask.add_argument("--rows", type=int, default=128, help="held-out rows of a validation (default 128)")
    ask.add_argument("--sample-steps", type=int, default=64, help="steps of the sampler (default 64)")
    ask.add_argument("--device", default="cpu", help="cpu, or cuda for a GPU (default cpu)")
    ask.add_argument("--seed", type=int, default=0, help="of all that is drawn (default 0)")
    return train(ask.parse_args(words))


if __name__ == "__main__":
    main()
