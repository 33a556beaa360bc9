"""Published models by id: the rows of `zellige list checkpoints`. From model cards and papers;
`-` where nothing says it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """One published model. `layout` is a name in LAYOUTS; `mask` the id of the mask, "" where there is none."""

    id: str
    system: str
    size: str
    tokenizer: str
    mask: str
    gives: str
    data: str
    licence: str
    layout: str

    def row(self) -> dict[str, str]:
        """As it is listed."""
        return {
            "id": self.id,
            "system": self.system,
            "size": self.size,
            "tokenizer, mask": f"{self.tokenizer}, {self.mask or '-'}",
            "network gives": self.gives,
            "data": self.data,
            "licence": self.licence,
        }


def _owt(id: str, system: str, gives: str, licence: str, layout: str = "", size: str = "170M", mask: str = "50257"):
    return Published(id, system, size, "gpt2", mask, gives, "openwebtext", licence, layout or system)


CATALOGUE = [
    _owt("louaaron/sedd-small", "sedd", "score", "MIT"),
    _owt("louaaron/sedd-medium", "sedd", "score", "MIT", size="424M"),
    _owt("JingyangOu/radd-lambda-dce", "radd", "mean", "-", size="162M"),
    _owt("JingyangOu/radd-t-dce", "radd", "mean", "-", size="162M"),
    _owt("kuleshov-group/mdlm-owt", "mdlm", "mean", "Apache-2.0"),
    _owt("kuleshov-group/mdlm-noeos-owt", "mdlm", "mean", "-"),
    *[_owt(f"kuleshov-group/bd3lm-owt-block_size{n}", "bd3lm", "mean", "-") for n in ("4", "8", "16", "1024-pretrain")],
    _owt("kuleshov-group/sedd-noeos-owt", "sedd", "score", "-", "sedd-noeos"),
    _owt("kuleshov-group/ar-noeos-owt", "ar", "next token", "-", size="162M", mask=""),
    Published("kuleshov-group/udlm-lm1b", "udlm", "139M", "bert", "", "leave-one-out", "lm1b", "-", "udlm"),
    Published("kuleshov-group/udlm-qm9", "udlm", "-", "own", "", "leave-one-out", "qm9", "-", "udlm"),
    _owt("s-sahoo/duo", "udlm", "leave-one-out", "-", "duo", mask=""),
    _owt("s-sahoo/duo-distilled", "udlm", "leave-one-out", "-", "duo", mask=""),
    *[
        Published(f"GSAI-ML/LLaDA-{name}", "mdlm", "8.0B", "own", "126336", "mean", "-", "MIT", "llada")
        for name in ("8B-Base", "8B-Instruct", "1.5")
    ],
    *[
        Published(f"Dream-org/Dream-v0-{name}-7B", "mdlm", "7.6B", "own", "151666", "mean", "-", "Apache-2.0", "dream")
        for name in ("Base", "Instruct")
    ],
    *[
        Published(id, "bd3lm", size, "own", "151669", "mean", "-", licence, "sdar")
        for id, size, licence in (
            ("JetLM/SDAR-1.7B-Chat", "1.7B", "Apache-2.0"),
            ("JetLM/SDAR-4B-Chat", "4B", "Apache-2.0"),
            ("JetLM/SDAR-8B-Chat", "8B", "Apache-2.0"),
            ("Gen-Verse/TraDo-4B-Instruct", "4B", "-"),
            ("Gen-Verse/TraDo-8B-Instruct", "8B", "-"),
        )
    ],
    *[
        Published(
            f"Efficient-Large-Model/Fast_dLLM_v2_{size}",
            "bd3lm",
            size,
            "own",
            "151665",
            "mean",
            "-",
            "Apache-2.0",
            "fast-dllm-v2",
        )
        for size in ("1.5B", "7B")
    ],
    Published("dllm-collection/Qwen3-0.6B-diffusion-mdlm-v0.1", "mdlm", "0.6B", "own", "", "mean", "-", "-", "a2d"),
    Published("Qwen/Qwen3-0.6B-Base", "ar", "0.6B", "own", "", "next token", "-", "Apache-2.0", "llama"),
    Published("google-bert/bert-base-uncased", "mdlm", "110M", "bert", "103", "mean", "-", "Apache-2.0", "bert"),
    Published("answerdotai/ModernBERT-base", "mdlm", "149M", "own", "50284", "mean", "-", "Apache-2.0", "modernbert"),
]
