"""Names of other libraries: where you ask for one that Zellige does not have, one sentence names what it has.

zellige.AutoModel       # AttributeError: module 'zellige' has no attribute 'AutoModel'; zellige.load(path) reads any model
"""

_LOAD = "zellige.load(path) reads any model, with its tokenizer"
_SAMPLE = "zellige.sample(model, prompt=...) draws texts"
_LOGITS = "model.method.predict(tokens, t) gives the network's answer, zellige.embed(model, texts) its vectors"
_WEIGHTS = "the weights are those of a torch module, `model.method`"
_MOVE = 'model.to("cuda") moves a model, zellige.load(path, device="cuda") loads it there'
_TRAIN = 'zellige.train("mdlm", data=...) trains a model'
_TOKENS = "model.tokenizer.encode(text) and model.text(tokens) go from text to tokens and back"
_SCORE = 'zellige.evaluate(model, texts) bounds the likelihood, zellige.pipeline("score", model) that of each text'

ELSEWHERE: dict[str, dict[str, str]] = {  # asked of what -> name there -> what to do here
    "zellige": {
        **dict.fromkeys(
            ("AutoModel", "AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoConfig", "AutoTokenizer", "DiffusionPipeline",
             "from_pretrained", "load_model"), _LOAD),
        **dict.fromkeys(("generate", "GenerationConfig"), _SAMPLE),
        **dict.fromkeys(("Trainer", "TrainingArguments", "Seq2SeqTrainer", "fit"), _TRAIN),
        **dict.fromkeys(("Tokenizer", "PreTrainedTokenizer", "encode", "decode"), _TOKENS),
        **dict.fromkeys(("Pipeline", "TextGenerationPipeline", "FillMaskPipeline"),
                        'zellige.pipeline("sample" | "infill" | "score", model) makes one'),
        **dict.fromkeys(("set_seed", "manual_seed"), "whatever draws takes `seed`, and draws the same for the same one"),
        **dict.fromkeys(("load_dataset", "Dataset"), "`data=` takes texts, arrays, a path or a name of `zellige list data`"),
        **dict.fromkeys(("score", "perplexity", "log_prob"), _SCORE),
    },
    "Model": {
        **dict.fromkeys(("generate", "sample", "sample_text"), _SAMPLE),
        **dict.fromkeys(("infill", "fill"), "zellige.infill(model, text) fills gaps"),
        **dict.fromkeys(("__call__", "forward", "logits", "predict", "embed", "get_input_embeddings"), _LOGITS),
        **dict.fromkeys(
            ("parameters", "named_parameters", "state_dict", "load_state_dict", "modules", "num_parameters"), _WEIGHTS),
        **dict.fromkeys(("train", "fit"), f"{_TRAIN}, Train(start=...) begins with a saved one"),
        **dict.fromkeys(("evaluate", "score", "log_prob", "log_likelihood", "perplexity", "loss"), _SCORE),
        **dict.fromkeys(("encode", "decode"), _TOKENS),
        **dict.fromkeys(("cuda", "cpu"), _MOVE),
        **dict.fromkeys(("half", "bfloat16", "float", "dtype"), 'zellige.load(path, precision="bfloat16") computes in it'),
        "eval": "a Model is always in eval mode",
        "requires_grad_": "a Model is to be used; zellige.train trains one",
        "compile": "torch.compile takes `model.method`",
        "device": "next(model.method.parameters()).device has it",
        "generation_config": "model.defaults holds the sampling defaults",
    },
    "pipeline": {
        **dict.fromkeys(("fill-mask", "infilling", "infill-text"), "infill"),
        **dict.fromkeys(("text-generation", "text2text-generation", "generate", "unconditional-image-generation",
                         "text-to-image"), "sample"),
        **dict.fromkeys(("perplexity", "text-classification", "scoring", "evaluate"), "score"),
    },
}  # fmt: skip


def no_attribute(of: str, name: str) -> str:
    """Message of the AttributeError where `name` is asked of "zellige" or "Model", and is in neither."""
    owner = "module 'zellige'" if of == "zellige" else f"'{of}' object"
    hint = ELSEWHERE[of].get(name)
    return f"{owner} has no attribute '{name}'" + (f"; {hint}" if hint else "")
