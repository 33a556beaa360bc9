"""A published model as ours: which layout, what it says, which tensors, renamed and placed."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import mode
from typing import Any

import torch
from torch import Tensor, nn

from zellige.base.errors import InputError, unknown
from zellige.base.schema import read_json, shown
from zellige.data import DATASETS, Data
from zellige.data.chat import chat_of, tokenizer_config
from zellige.data.tokenizer_base import Tokenizer
from zellige.methods import METHODS, build
from zellige.methods.method import Method
from zellige.models.checkpoint.read import check_fit, check_sums, place
from zellige.models.config import Config
from zellige.models.published import SUFFIXES, weights_in
from zellige.nn.network import unfilled

from . import ddit
from .catalogue import CATALOGUE
from .flat import flattened
from .layout import Choices, Description, Layout, Shapes
from .layouts import LAYOUTS
from .opening import WeightsFile, open_weights
from .tokens import first_token, tokenizer_of

BESIDE = ("config.json", "tokenizer.json", "tokenizer_config.json")  # the weights, in a folder that has checksums

UNREAD = {  # `model_type` -> what it is, and where to go with it
    "diffusion_gemma": "a DiffusionGemma (uniform noise in blocks, an encoder beside the decoder, mixtures of experts), which "
    "Zellige does not read; sample it with transformers' own class, DiffusionGemmaForBlockDiffusion (from 5.23 on)",
}


@dataclass(frozen=True)
class Imported:
    """A published model: what `Model` is made of."""

    method: Method
    tokenizer: Any
    config: Config
    about: dict[str, Any]


def read(source: str | Path, hub: str = "", **choices: Any) -> Imported:
    """A published model from its folder or its file.

    Args:
        hub: the id it was downloaded by; the catalogue may know its layout.
        choices: see `Choices`.

    Raises:
        InputError: no layout is known for it; keys, shapes, tokenizer or vocabulary that do not fit; a file that is
            damaged or asks to run something. Nothing is loaded half.
    """
    values = Choices.of(choices)
    file, entries = weights_and_config(Path(source))
    config = entries if entries is None else _inner(entries)
    layout = _named(values, hub)
    if layout is None and config is not None:
        layout = _knowing(config, file)
    if layout is not None and layout.safetensors:
        _refuse_pickle(file, layout)
    loaded_tensors = open_weights(file)
    config = config if config is not None else loaded_tensors.config
    layout = layout or _knowing(config, file)
    tensors = stripped(loaded_tensors.tensors, layout.strips)
    if layout.build is None and "output_layer.weight" in tensors:
        raise InputError(
            f"'{shown(file)}' is a classifier, not a model of text; read it with "
            "zellige.plugins.published.classifier(...)"
        )
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if config is not None and layout.build is None:
        config = flattened(config, shapes) or config
    if config is not None and layout.adopt is not None and not layout.knows(config):
        config = entries = layout.adopt(config) or config
    said = _describe(layout, config, shapes, values)
    description = _chosen(layout, said, shapes, values)
    if layout.tokenizer is not None:
        folder = Path(values.tokenizer or file.parent).expanduser()
        folder = folder.parent if folder.is_file() else folder
        tokenizer = layout.tokenizer(folder, description)
        if folder.is_dir():
            tokenizer.chat = chat_of(folder, tokenizer_config(folder))
        mask = getattr(tokenizer, "mask", None)
        description = replace(description, rows=tokenizer.size, mask=description.mask if mask is None else mask)
    else:
        tokenizer = tokenizer_of(layout, description, values, file.parent)
    cls, options = METHODS[layout.method], _options(layout, description, tokenizer)
    with unfilled(), torch.random.fork_rng(devices=[]):
        net = layout.build(config or {}, description) if layout.build else description.net
        method = build(cls, tokenizer.size, net, options, description.net.length, tokenizer.ordered)
    assert isinstance(method.network, nn.Module)
    if config is not None and layout.revise is not None:
        entries = layout.revise(config, asdict(options))
    is_average = _take(method.network, layout, tensors, loaded_tensors, values, description)
    about: dict[str, Any] = {
        "published": {
            "layout": layout.name,
            "source": hub or shown(source),
            "config": next((c for c in (entries, config, layout.usual) if c is not None), None) or layout.write(said),
            "options": said.options if description.mask is None else {**said.options, "mask": description.mask},
            "weights": "ema" if is_average else "raw",
            "rows": description.rows,
        }
        | _rest(layout, loaded_tensors)
    }
    if loaded_tensors.step is not None:
        about["step"] = loaded_tensors.step
    name = description.data if description.data in DATASETS else "text"
    data = Data(name, tokenizer=values.tokenizer or description.tokenizer)
    run = Config(layout.method, options, data, description.net, network=layout.name if layout.build else "")
    return Imported(method.eval(), tokenizer, run, about)


def weights_and_config(source: Path) -> tuple[Path, dict[str, Any] | None]:
    """The file of weights and the config.json beside it, if there is one."""
    file = source if source.is_file() else weights_in(source) if source.is_dir() else None
    if file is None:
        raise InputError(
            f"'{shown(source)}' holds no weights; give a file of {', '.join(SUFFIXES)} or the folder that holds one"
        )
    check_sums(file.parent, *BESIDE)
    path = file.parent / "config.json"
    if not path.is_file():
        return file, None
    return file, read_json(path, dict, "copy or download it again")


def _inner(config: dict[str, Any]) -> dict[str, Any]:
    """A config that the hub's mixin has wrapped, by the name of the argument it was."""
    inside = config.get("config")
    return inside if isinstance(inside, dict) and "model" in inside else config


# ---------------------------------------------------------------------------------------------------- which layout
def _named(chosen: Choices, hub: str) -> Layout | None:
    """The layout that `system` names, or that the catalogue has for an id; None where nobody says it."""
    name = chosen.system or next((row.layout for row in CATALOGUE if row.id == hub), None)
    if name is not None and name not in LAYOUTS:
        raise unknown("system", name, LAYOUTS, "zellige import --help")
    return None if name is None else LAYOUTS[name]


def _knowing(config: Mapping[str, Any] | None, file: Path) -> Layout:
    """The layout that knows the config of a file: one of ours, else one of another package. InputError for none."""
    if config is None:
        raise InputError(
            f"'{shown(file)}' comes without a config.json; choose with `system`: {', '.join(LAYOUTS)}, and `length`"
        )
    others = (plugged.value for plugged in LAYOUTS.plugged() if plugged.value is not None)
    flat = flattened(config, {}) or config
    layout = next((layout for layout in chain(LAYOUTS.values(), others) if layout.knows(flat)), None)
    if layout is not None:
        return layout
    kind = config.get("model_type", config.get("architectures", "-"))
    if isinstance(kind, str) and kind in UNREAD:
        raise InputError(f"'{shown(file)}' is {UNREAD[kind]}")
    raise InputError(
        f"no format is known for the config.json beside '{shown(file)}' (model_type {kind})"
        f"{', and code that comes with a model is never run' if 'auto_map' in config else ''}; "
        f"choose with `system`: {', '.join(LAYOUTS)}"
    )


def _refuse_pickle(file: Path, layout: Layout) -> None:
    """InputError where weights of a layout that has only safetensors are a pickle."""
    if ".safetensors" not in file.suffixes:
        raise InputError(
            f"'{shown(file)}' is a pickle, and a model of format {layout.name} is read from safetensors only; save it "
            "again with transformers' save_pretrained, which writes model.safetensors"
        )


def stripped(tensors: Mapping[str, Tensor], strips: tuple[str, ...]) -> dict[str, Tensor]:
    """Tensors by their names without the prefixes that wrappers add."""
    bare: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        short = bare_name(name, strips)
        if short in bare:
            raise InputError(
                f"two tensors are called '{short}' when prefixes are taken away; give a file with one model"
            )
        bare[short] = tensor
    return bare


def bare_name(name: str, strips: tuple[str, ...]) -> str:
    """A name without the prefixes that wrappers add."""
    while any(name.startswith(prefix) for prefix in strips):
        name = name.removeprefix(next(prefix for prefix in strips if name.startswith(prefix)))
    return name


# ---------------------------------------------------------------------------------------------------- what it says
def _describe(layout: Layout, config: Mapping[str, Any] | None, shapes: Shapes, chosen: Choices) -> Description:
    """Description from the config; without one, from the tensors and the choices."""
    if config is None:
        if layout.build is not None:
            raise InputError(f"a model of format {layout.name} needs its config.json; copy it beside the weights")
        usual = layout.usual
        description = ddit.bare(layout, shapes, chosen) if usual is None else layout.read(usual, shapes)
    else:
        description = layout.read(config, shapes)
    rows = shapes.get("vocab_embed.embedding", (description.rows,))[0]
    if rows != description.rows:
        raise InputError(
            f"the config.json says {description.rows:,} rows, the table of embeddings has {rows:,}; copy both again"
        )
    return description


def _chosen(layout: Layout, description: Description, shapes: Shapes, chosen: Choices) -> Description:
    """A description in which the choices outrank what the file says. InputError where they contradict its tensors."""
    net, options, method = description.net, dict(description.options), METHODS[layout.method]
    fixed = ("heads", "time") if layout.build is not None or layout.convert is not None else ()  # by its own class
    for name in ("begin", "block", "heads", "process", "schedule", "time"):
        value = getattr(chosen, name)
        if value is None:
            continue
        if name in fixed or name not in (*method.Config.__dataclass_fields__, "heads"):
            raise InputError(f"`{name}` is no choice of {layout.name}; leave it out")
        if value not in method.choices.get(name, (value,)):
            raise unknown(name, value, method.choices[name])
        if name != "heads":
            options[name] = value
    net = replace(net, length=chosen.length or net.length, heads=chosen.heads or net.heads)
    waves = shapes.get("rotary_emb.inv_freq")
    if waves and net.hidden != 2 * waves[0] * net.heads:
        heads = net.hidden // (2 * waves[0])
        raise InputError(f"its rotary frequencies are those of {heads} heads, not of {net.heads}; give `heads` {heads}")
    if chosen.process is not None and "scale_by_sigma" in options:  # which the config says of its own process
        options["scale_by_sigma"] = None
    if chosen.schedule not in (None, description.options.get("schedule")):  # it has its usual ends and exponent
        options = {n: value for n, value in options.items() if n not in ("exponent", "sigma_max", "sigma_min")}
    if chosen.time is not None:
        net = replace(net, constant=not chosen.time)
    return replace(description, net=net, options=options)


def _options(layout: Layout, description: Description, tokenizer: Tokenizer) -> Any:
    options = dict(description.options)
    if description.mask is not None:
        options["mask"] = description.mask
    if layout.method == "ar":
        begin = options.get("begin", first_token(tokenizer))
        if begin is None:
            raise InputError("nothing says which token begins a text; give `begin`, e.g. `begin` 0")
        options["begin"] = begin
    return METHODS[layout.method].Config(**options)


# ---------------------------------------------------------------------------------------------------- its tensors
def _take(
    network: nn.Module,
    layout: Layout,
    tensors: dict[str, Tensor],
    opened: WeightsFile,
    chosen: Choices,
    description: Description,
) -> bool:
    """Place the tensors, the averaged ones where there are any; whether they are averages."""
    state = network.state_dict()
    names_of_layout = {layout.theirs(name): name for name in state}
    average = None if chosen.weights == "raw" else opened.average
    if chosen.weights == "ema" and average is None:
        raise InputError(f"'{shown(opened.file)}' holds no averaged weights; leave `weights` out")
    if isinstance(average, list):
        names = (
            list(names_of_layout)
            if layout.convert is None
            else [name for name in tensors if name not in layout.buffers]
        )
        names_in_order = layout.order(names)
        if len(average) != len(names_in_order):
            raise InputError(
                f"the averaged weights are {len(average)} tensors, the model has {len(names_in_order)}; "
                "take the others with `weights` raw"
            )
        by_name = dict(zip(names_in_order, average))
    elif average is not None:
        by_name = stripped(average, layout.strips)
    else:
        by_name = tensors
    by_name = {name: tensor for name, tensor in by_name.items() if name not in layout.buffers}
    for name, twin in layout.twins.items():
        if name in by_name and name not in names_of_layout:
            tensor = by_name.pop(name)
            if not torch.equal(by_name.setdefault(twin, tensor), tensor):
                raise InputError(
                    f"'{name}' is another than '{twin}', and this network has one for both; give a tied model"
                )
    sizes = str(description.net) if description.net.is_unet else f"{description.net.layers} layers"
    what = f"the format is {layout.name}, of {sizes}"
    by_name = by_name if layout.convert is None else layout.convert(by_name, description.net)
    for name in layout.tables:
        if name in by_name and name in names_of_layout:
            by_name[name] = with_row(by_name[name], len(state[names_of_layout[name]]))
    check_fit({name: state[names_of_layout[name]] for name in names_of_layout}, by_name, what)
    state_by_name = {names_of_layout[name]: tensor.detach() for name, tensor in by_name.items()}
    place(network, state_by_name, what, take=True)
    return average is not None


def with_row(table: Tensor, rows: int) -> Tensor:
    """A table (R, D) of so many rows, if it lacks one: the mean of the others."""
    return torch.cat((table, table.float().mean(0, keepdim=True).to(table))) if len(table) == rows - 1 else table


def _rest(layout: Layout, opened: WeightsFile) -> dict[str, Any]:
    """Requirements of the way back beside the weights: the prefix, the types of numbers (the usual one, and those of
    tensors that have another), and the buffers."""
    whole = next((n for n in opened.tensors if bare_name(n, layout.strips) not in layout.buffers), "")
    buffers = {n: t for n, t in opened.tensors.items() if bare_name(n, layout.strips) in layout.buffers}
    dtypes = {n: str(t.dtype).removeprefix("torch.") for n, t in opened.tensors.items()}
    usual = mode(dtype for n, dtype in dtypes.items() if n not in buffers)
    return {
        "prefix": whole.removesuffix(bare_name(whole, layout.strips)),
        "dtype": usual,
        "dtypes": {n: dtype for n, dtype in dtypes.items() if n not in buffers and dtype != usual},
        "buffers": {n: {"dtype": dtypes[n], "values": t.tolist()} for n, t in buffers.items()},
    }


def rebuild(layout: Layout, about: Mapping[str, Any], config: Config) -> nn.Module:
    """The network of a layout with a class of its own, for a model that was imported and saved; its weights unset."""
    published_entries = about.get("published", {})
    entries = published_entries.get("config")
    if layout.build is None or not isinstance(entries, Mapping) or not isinstance(published_entries.get("rows"), int):
        raise InputError(f"the model does not say how its network ({layout.name}) was published; import it again")
    description = replace(
        layout.read(entries, {}), net=config.net, rows=published_entries["rows"], options=asdict(config.options)
    )
    with unfilled():
        return layout.build(entries, description)


def beginning(folder: Path, method: str) -> str | None:
    """The layout in which a published model begins one of this method, where its own layout is of another; None:
    its own."""
    config = weights_and_config(folder)[1] or {}
    if any(layout.knows(config) and layout.method == method for layout in LAYOUTS.values()):
        return None
    fits = (n for n, of in LAYOUTS.items() if of.method == method and of.adopt is not None and of.adopt(config))
    return next(fits, None)
