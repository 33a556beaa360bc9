"""Planted errors in tuning: what is given, how an answer ends, which weights a run is of, and what it stores."""

from .outside import of

RUN, FOLDER = "training/test_tune.py -k ", "models/published/test_tuned.py -k "
GIVEN, CHAT, ADAPTER, TUNE = "data/given.py", "data/chat.py", "models/adapter.py", "training/tune.py"

TUNED = of(
    "verify trains no model and reads no file; that the bound of an answer is right is its check `given`",
    (
        "prompts are learnt with their answers",
        GIVEN,
        "return np.arange(n) < min(int(self._prompts[i]), n - 1)",
        "return np.arange(n) < min(int(self._prompts[i]), 0)",
        RUN + "loss_is_that_of_the_answers",
    ),
    (
        "the prompt of a conversation lacks the beginning of the answer's turn",
        CHAT,
        '"add_generation_prompt": asks}',
        '"add_generation_prompt": False}',
        FOLDER + "through_the_template",
    ),
    (
        "a tokenizer is saved without its chat template",
        "data/tokenizer.py",
        "config |= self.chat",
        "config |= {}",
        FOLDER + "through_the_template",
    ),
    (
        "an answer in blocks is filled to the end of the row",
        "models/ends.py",
        "return block if 0 < block < length",
        "return length if 0 < block < length",
        RUN + "family",
    ),
    (
        "an autoregressive answer is filled to the end of the row",
        "models/ends.py",
        'in ("next", "insertion")',
        'in ("insertion",)',
        RUN + "family",
    ),
    (
        "adapters begin otherwise each time",
        TUNE,
        'torch.manual_seed(mix(config.train.seed, "adapter") % 2**63)',
        "torch.seed()",
        RUN + "resumed",
    ),
    (
        "adapters are scaled by alpha alone",
        ADAPTER,
        "lora_alpha=adapter.alpha",
        "lora_alpha=adapter.alpha * adapter.rank",
        RUN + "peft",
    ),
    (
        "of a bfloat16 model the adapters are in bfloat16",
        ADAPTER,
        "p.data = p.data.float()",
        "p.data = p.data.clone()",
        RUN + "before_the_first_step",
    ),
    (
        "of the projections the first kind alone is adapted",
        ADAPTER,
        "    for target in targets or there:",
        "    for target in targets or there[:1]:",
        RUN + "alone_is_trained",
    ),
    (
        "a tuned model is loaded on any base of its shape",
        "models/model.py",
        "if not may_have_changed() and fingerprint(model.method) != config.adapter.base_sha256:",
        "if not config.adapter.base_sha256:",
        RUN + "wrong_with_a_base",
    ),
    (
        "a base is known by a path that another folder does not have",
        TUNE,
        "return str(locate(name).resolve()) if Path(name).exists() else name",
        "return name",
        FOLDER + "there_and_back",
    ),
    (
        "a tuned model forgets in which layout its base came",
        TUNE,
        'return {"published": published} if published else {}',
        "return {}",
        FOLDER + "there_and_back",
    ),
)
