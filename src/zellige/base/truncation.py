"""Options that several samplers and requests have, declared once: those of truncation, and tokens a step.

    top_k: int | None = option(default=None, **TOP_K)

Each has its help and its range. Importing this file imports no torch.
"""

from typing import Any

TOKENS = 1_000_000  # at most, of an option that counts tokens or names one

PER_STEP: dict[str, Any] = {"help": "tokens a step", "minimum": 1, "maximum": TOKENS}
TEMPERATURE: dict[str, Any] = {"help": "below 1 favours likely tokens, 0 takes the likeliest", "minimum": 0}
TOP_P: dict[str, Any] = {
    "help": "keep the likeliest tokens up to this total probability",
    "above": 0,
    "maximum": 1,
}
TOP_K: dict[str, Any] = {
    "help": "keep this many of the likeliest tokens; applied before top-p",
    "minimum": 1,
    "maximum": TOKENS,
}
