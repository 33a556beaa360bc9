"""What a newcomer calls by mistake: each is one sentence that says what was wrong and what would be right."""

import inspect
import re
from pathlib import Path

import pytest
import torch

import zellige
from zellige import Batch, Data, InputError, Net, Train
from zellige.base.errors import ELSEWHERE
from zellige.data import tokenizer as tk
from zellige.data.levels import Levels
from zellige.methods import build
from zellige.models.config import Config
from zellige.plugins.adapters.pipelines import TASKS

NET = Net(layers=1, hidden=16, heads=2, length=16)


def model(tokenizer, net=NET):
    torch.manual_seed(0)
    method = build("mdlm", tokenizer.size, net, ordered=tokenizer.ordered)
    return zellige.Model(method, tokenizer, Config("mdlm", method.config, Data("text"), net, Train()))


@pytest.fixture(scope="module")
def names():
    text = model(tk.Characters(tk.TEXT8))
    return {
        "z": zellige, "m": text, "method": text.method, "images": model(Levels(4, (4, 4), "image", "dim", True)),
        "x": torch.zeros(2, 16, dtype=torch.long), "torch": torch, "Batch": Batch, "Data": Data, "Train": Train, "Path": Path,
        "Net": Net, "train": lambda *a, **k: zellige.train(*a, **{"net": NET, "train": Train(steps=1), "run": "x"} | k),
    }  # fmt: skip


NOT_A_MODEL = "it must be a Model (zellige.load), or the path or id of one"
CALLS = {
    # a model ---------------------------------------------------------------------------------------------------------
    "z.sample(None)": f"`model` is None; {NOT_A_MODEL}",
    "z.sample(method)": f"`model` is a MDLM; {NOT_A_MODEL}",
    "z.sample(z.METHODS['mdlm'])": f"`model` is the class MDLM; {NOT_A_MODEL}",
    "z.sample(method.state_dict())": f"`model` is an OrderedDict; {NOT_A_MODEL}",
    "z.sample('mdlm')": "no run or model at 'mdlm'; it is the name of a method; train a model of it, and give its run",
    "z.sample(Path('/nothing/here'))": "no run or model at '/nothing/here'; give a run, a folder that Zellige saved, or the id",
    "z.load(None)": "`path` is None; it must be a text or a path",
    "z.load('runs/a', lenght=8)": "unknown choice 'lenght'; did you mean 'length'?",
    "z.load('runs/a', device='gpu')": "`device` is 'gpu'; it must be cpu",
    "z.Model(3, None, None)": "`method` is 3; it must be a Method; of a folder, zellige.load makes a Model",
    "z.Model(method, None, None)": "`tokenizer` is None; it must be a tokenizer, as `prepare(...).tokenizer` is one",
    "z.Model.from_pretrained(None)": "`pretrained_model_name_or_path` is None; it must be a text or a path",
    "z.Model.from_pretrained('a', torch_dtype='auto')": "from_pretrained() has no argument 'torch_dtype'; it has pretrained",
    "z.Model.from_pretrained('a', device_map=0)": "from_pretrained() has no argument 'device_map'; did you mean 'device'?",
    "z.pipeline('sample')": 'pipeline("sample") needs a model; give one, its path or its name',
    "z.sample(m, max_new_tokens=4)": "no argument is called 'max_new_tokens'; did you mean 'length'?",
    "m.save_pretrained(None)": "`save_directory` is None; it must be a text or a path",
    "m.text(torch.zeros(3))": "`tokens` is (3,) float32; it must be a tensor, array or list of whole numbers",
    "m.text([99])": "tokens are 99 among them; they must be (B, L) or (L,) numbers of 0 to 27",
    # sampling --------------------------------------------------------------------------------------------------------
    "z.sample(m, 4)": "sample() takes 1 arguments by position, not 2; give steps, sampler, temperature by name",
    "z.sample(m, num_samples=4)": "no argument is called 'num_samples'; did you mean 'count'?",
    "z.sample(m, steps=0)": "`steps` is 0; it must be 1 or more",
    "z.sample(m, steps=2.5)": "`steps` is 2.5; it must be a whole number or None",
    "z.sample(m, temperature=-1)": "`temperature` is -1; it must be 0 or more",
    "z.sample(m, top_p=0)": "`top_p` is 0; it must be above 0 and at most 1",
    "z.sample(m, seed=None)": "`seed` is None; it must be a whole number or a list",
    "z.sample(m, sampler='mdlm')": "unknown sampler 'mdlm'; all of them: zellige list samplers",
    "z.sample(m, sampler=z.SAMPLERS['euler'])": "`sampler` is the class Euler; it must be the name of a sampler, or a sampler",
    "z.sample(m, sampler=3)": "`sampler` is 3; it must be the name of a sampler, or a sampler: Ancestral()",
    "z.sample(m, prompt=[1, 2])": "`prompt` is a list; it must be a text, a list of texts or None",
    "z.sample(m, prompt='Ä')": "'Ä' at position 0 of the prompt is not in the model's vocabulary (a-z and space)",
    "z.sample(m, prompt='a' * 17)": "the prompt has 17 tokens, the model takes 16; shorten it, or use",
    "z.sample(m, classes='cat')": "the model was trained without classes; leave the class out, or train with `data.labels`",
    "z.sample(m, fixed=torch.zeros(16))": "`fixed` is (16,) float32; it must be a tensor, array or list of whole numbers",
    "z.sample(m, fixed=[99] * 16)": "`fixed` holds 99; give tokens 0 to 26, and -1 where one is free",
    "z.sample(m, prompt=['a', 'b'], count=3)": "`count` is 3, `prompt` has 2 texts; give a multiple of that",
    "z.sample(m, reconstruct=[[1] * 16] * 3, count=4)": "`count` is 4, `reconstruct` has 3 rows; give a multiple of that",
    "z.sample(m, reconstruct=[99] * 16)": "`reconstruct` holds 99; give tokens 0 to 26",
    "z.guide.Truncated(m)": "`method` is a Model; it must be a Method, such as `model.method`",
    "z.run(z.SAMPLERS['euler'](), m, (2, 16))": "`method` is a Model; it must be a Method",
    # filling ---------------------------------------------------------------------------------------------------------
    "z.infill(m)": "infill needs a text with gaps, or fixed tokens; give one of the two",
    "z.infill(m, [1, 2])": "`text` is a list; it must be a text, a list of texts or None",
    "z.infill(m, 'the')": "nothing to fill: no '_' in the text; mark each missing token with it, or set `mask_token`",
    "z.infill(images, 'a_')": "this model makes images, and no text is one; give `fixed`: tokens, -1 where one is to be drawn",
    "z.infill(images, fixed=torch.zeros(3, 3, dtype=torch.long))": "`fixed` has 3 places, the model takes 16; give a token or -1",
    # judging ---------------------------------------------------------------------------------------------------------
    "z.evaluate(m)": "this model comes without its text; say which text to read with `data`",
    "z.evaluate(m, ['the'], draws=0)": "`draws` is 0; it must be 1 or more",
    "z.evaluate(m, ['the'], estimator='exact')": "unknown estimator 'exact'; all of them: bound, any_order",
    "z.evaluate(m, -x - 1)": "token id -1 in the data but the vocabulary has 27 entries",
    "z.evaluate(m, Batch(x))": "the data is a Batch; it must be a list of texts, or whole numbers: a list, array or tensor",
    "z.evaluate(m, 'digits')": "the run was trained on a-z and space, this data has 8 x 8 images of 17 levels",
    "z.evaluate(images, ['a'])": "the data is texts, and the model makes images; give whole numbers (N, ...)",
    "z.embed(m, [1, 2])": "`texts` is a list; it must be a list of texts or a text",
    "z.embed(m, ['the'], t=2)": "`t` is 2; it must be from 0, the clean text, to 1, nothing but noise",
    "method.loss(x)": "`batch` is a Tensor; it must be a Batch",
    "method.loss(Batch(x + 99))": "tokens hold 99; they must be 0 to 26",
    "z.METHODS['mdml']": "unknown method 'mdml'; did you mean 'mdlm'? (all: zellige list methods)",
    "z.SAMPLERS['ancestor']": "unknown sampler 'ancestor'; did you mean 'ancestral'? (all: zellige list samplers)",
    "method.predict(x, 2.0)": "`t` is 2; it must be from 0 to 1.001, CLEAN or PRIOR",
    "method.predict(x, torch.tensor([[0.5], [-0.1]]))": "`t` is -0.1; it must be from 0 to 1.001, CLEAN or PRIOR",
    "method.predict(x, torch.zeros(3))": "`t` is (3,) float32; it must be a time, or times that broadcast to (2, 16)",
    "method.corrupt(Batch(x), 10**30)": "`t` is 1e+30; it must be from 0 to 1.001, CLEAN or PRIOR",
    "method.corrupt(Batch(x), -1)": "`t` is -1; it must be from 0 to 1.001, CLEAN or PRIOR",
    "method.corrupt(Batch(x), torch.tensor(torch.nan))": "`t` is nan; it must be from 0 to 1.001, CLEAN or PRIOR",
    "Batch(x.float())": "tokens are (2, 16) float32; they must be (B, L) whole numbers",
    "z.verify(m)": "`method` is a Model; it must be a text or a class",
    "z.report.curves(None)": "`run` is None; it must be a run's folder, or what train returned",
    "z.report.curves(m)": "`run` is a Model; it must be a run's folder, or what train returned",
    # training --------------------------------------------------------------------------------------------------------
    "train('mdml')": "unknown method 'mdml'; did you mean 'mdlm'?",
    "train('ancestral')": "unknown method 'ancestral'; all of them: zellige list methods",
    "train(method)": "`method` is a MDLM; it must be a text, a class or None",
    "train(torch.nn.Linear)": "method is the class Linear; it must be a name of zellige list methods, or a class of Method",
    "train('mdlm', steps=3)": "train() has no argument 'steps'; did you mean 'train=Train(steps=...)'?",
    "train('mdlm', lr=3)": "train() has no argument 'lr'; did you mean 'train=Train(lr=...)'?",
    "train('mdlm', hidden_size=3)": "train() has no argument 'hidden_size'; did you mean 'net=Net(hidden=...)'?",
    "train('mdlm', net={'layers': 1})": "`net` is a dict; it must be a Net, a Module or None",
    "train('mdlm', net=torch.nn.Linear(2, 2))": "`net` is a Linear; it must be a Net, or a network with 'features' and 'head'",
    "train('mdlm', train={'steps': 3})": "`train` is a dict; it must be a Train or None",
    "train('mdlm', options={'time': True})": "`options` is a dict; it must be MDLM.Config, as MDLM.Config() makes it",
    "train('mdlm', options=z.METHODS['sedd'].Config())": "`options` is SEDD.Config; it must be MDLM.Config",
    "z.METHODS['mdlm'].Config(foo=3)": "Config() has no argument 'foo'; it has",
    "train('mdlm', resume=True)": "no run at 'x' to resume; drop `resume` to start one",
    "Train(epochs=3)": "Train() has no argument 'epochs'; did you mean 'steps'?",
    "Train(lr=-1)": "`train.lr` is -1; it must be above 0",
    "Net(hidden=10, heads=3)": "`net.hidden` 10 does not split into `net.heads` 3 of an even width; try `net.hidden` 12",
    "Data.of(['a'], labels=[1])": "`labels` goes with integers, and the data is texts; leave it out",
    # everything else -------------------------------------------------------------------------------------------------
    "m.tokenizer.encode(5)": "`text` is 5; it must be a text",
    "m.tokenizer.decode(['a'])": "`tokens` is (1,) <U1; it must be a row of whole numbers: a list, an array or a tensor",
    "m.tokenizer.decode(x)": "`tokens` is (2, 16) int64; it must be a row of whole numbers",
    "setattr(m, 'defaults', b'x')": "`defaults` is a bytes; it must hold sampling defaults by name",
    "z.studies.Sweep('mdlm', axes=5)": "`axes` is 5; it must be a dict, a list or None",
    "z.studies.Sweep('mdlm', {'train.lr': 3}).all_axes": "the axis 'train.lr' is 3; give a setting's name with a list of values",
    "z.Record.load(object())": "`path` is an object; it must be a text or a path",
    "z.Evaluate().differs('draw')": "unknown field 'draw'; did you mean 'draws'?",
    "z.guide.temperature({}, 1.0)": "`p` is a dict; it must be a Tensor",
    "z.exact.states('a', 2)": "`K` is 'a'; it must be a whole number",
    "z.report.trace([1])": "`states` holds 1; give all that watch or run yields, in order",
    "z.load('runs/a', method=int)": "method is the class int; it must be a name of zellige list methods, or a class of Method",
    "z.compare('mdlm')": "`methods` is 'mdlm'; it must be a list",
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_call_is_one_sentence(call, names, tmp_path, monkeypatch):
    if "device=" in call and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path / "cache"))
    with pytest.raises((InputError, TypeError)) as caught:
        list(result) if hasattr(result := eval(call, names), "__next__") else None
    assert re.match(re.escape(CALLS[call]), str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("of", ["zellige", "Model"])
def test_names_of_other_libraries(of, names):
    """Each says in one sentence what to do here, and what it names is there."""
    whole = {"zellige": zellige, "Model": names["m"]}[of]
    for name, hint in ELSEWHERE[of].items():
        if name == "__call__":
            with pytest.raises(TypeError, match=re.escape(f"a Model is not called; {hint}")):
                whole("a text")
            continue
        with pytest.raises(AttributeError, match=re.escape(f"has no attribute '{name}'; {hint}")):
            getattr(whole, name)
        for asked, path in re.findall(r"\b(zellige|model)\.([a-z_.]+)", hint):
            value = {"zellige": zellige, "model": names["m"]}[asked]
            for part in path.split("."):
                value = getattr(value, part)
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        whole.nothing  # noqa: B018


def test_tasks_of_other_libraries(names):
    for task, ours in ELSEWHERE["pipeline"].items():
        assert ours in TASKS
        with pytest.raises(
            InputError, match=re.escape(f"unknown task '{task}'; here it is pipeline(\"{ours}\", model)")
        ):
            zellige.pipeline(task)  # pyright: ignore[reportCallIssue]


def test_a_public_name_that_is_nearly_right_is_known_to_python():
    """Python itself asks "Did you mean": the error says of which module which name was asked."""
    with pytest.raises(AttributeError) as caught:
        zellige.samples  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("samples", zellige)


# ---------------------------------------------------------------------------------------------------- every public name
WRONG = (None, 5, -1, 1.5, "x", b"x", object(), {}, [], [1], ["a"])
NOWHERE = (b"x", object())  # right for no argument: of what computes for long where the argument is right
LONG = re.compile(
    r"train$|^sample$|verify$|report.write$|exact.(run|sample)_|(Training|Tune|Sweep|Plan|Evaluate)\w*\.(run|start)$"
)
LEFT_OUT = {
    "__version__": "no function",
    "InputError": "what is raised",
    "demo": "the script of a command, whose functions are given what the command made",
    "Method": "called in each evaluation of the network, and overridden by methods: it checks what `METHODS` below has",
    "exact.Script": "made for each outcome of an enumeration",
}
METHODS = ("of_length", "of_network", "compute_in", "terms", "bound", "loss", "predict", "corrupt")  # that check


def members(owner, name, instance):
    """The public methods of a class, as they are called on it or on an instance."""
    for member in dir(owner):
        static = inspect.getattr_static(owner, member)
        if member.startswith("_") or not getattr(static, "__module__", "").startswith("zellige"):
            continue
        if inspect.isfunction(static) or isinstance(static, (classmethod, staticmethod)):
            yield f"{name}.{member}", getattr(instance() if inspect.isfunction(static) else owner, member)


def public_calls(few, x):
    """Everything public that can be called, by its name; methods are those of the model `few`, and of what is made of `x`."""
    state = zellige.State(x, x > 0, x[:, 0])
    instances = {
        "Batch": lambda: Batch(x), "State": lambda: state, "Model": lambda: few, "Config": lambda: few.config,
        "Sweep": lambda: zellige.studies.Sweep("mdlm", {}),
    }  # fmt: skip
    groups = (zellige.evaluations, zellige.studies)
    named = [(name, getattr(module, name)) for module in (zellige, *groups) for name in module.__all__]
    for name, value in named:
        if (
            any(value is group for group in groups)
            or name in LEFT_OUT
            or not (callable(value) or inspect.ismodule(value))
        ):
            continue
        if inspect.ismodule(value):
            here = [n for n, v in vars(value).items() if getattr(v, "__module__", "") == value.__name__]
            for part in getattr(value, "__all__", here):
                if callable(getattr(value, part)) and not part.startswith("_") and f"{name}.{part}" not in LEFT_OUT:
                    yield f"{name}.{part}", getattr(value, part)
            continue
        yield name, value
        if inspect.isclass(value):
            yield from members(value, name, instances.get(name, value))
    yield "Method", zellige.Method
    yield from ((f"Method.{name}", getattr(few.method, name)) for name in METHODS)
    yield from members(type(few.tokenizer), "tokenizer", lambda: few.tokenizer)
    levels = Levels(4, (2, 2), "image", "dim", True)
    yield from members(Levels, "levels", lambda: levels)


def outcome(function, arguments):
    """What is wrong with how a call ended; "" if it worked, or said in one line what is wrong."""
    try:
        result = function(**arguments)
        next(result, None) if hasattr(result, "__next__") else None
    except NotImplementedError:  # of a base class
        return ""
    except InputError as error:
        return "" if "\n" not in str(error) else f"several lines: {error}"
    except TypeError as error:  # of names of arguments
        return "" if re.search(r"argument.*; ", str(error)) else repr(error)
    except Exception as error:
        return repr(error)
    return ""


@pytest.mark.filterwarnings("ignore")
def test_every_public_name_with_wrong_values_says_so(tmp_path, monkeypatch):
    """Each argument of each public function and method gets values of wrong kinds, the others right ones."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path / "cache"))
    few, x = (
        model(tk.Characters("ab"), Net(layers=1, hidden=16, heads=2, length=4)),
        torch.zeros(2, 4, dtype=torch.long),
    )
    method = few.method
    right = {
        "method": method, "model": few, "tokenizer": few.tokenizer, "process": method.process,
        "batch": Batch(x), "distribution": torch.ones(4) / 4, "p": torch.ones(2, 3) / 3, "x": x, "x_0": x, "x_t": x, "t": 0.5,
        "s": 0.4, "times": torch.tensor([1.0, 0.0]), "value": 0.5, "K": 3, "L": 2, "n": 4, "length": 2, "rows": x[:, 0],
        "text": "a", "run": "nothing", "sampler": zellige.SAMPLERS["ancestral"](), "shape": (2, 4), "states": [],
    }  # fmt: skip
    wrong, count = [], 0
    for name, function in public_calls(few, x):
        parameters = [
            p
            for p in inspect.signature(function).parameters.values()
            if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        ]
        needed = {p.name: right.get(p.name, "x") for p in parameters if p.default is p.empty}
        for p in parameters:
            for value in NOWHERE if LONG.search(name) else WRONG:
                count += 1
                if problem := outcome(function, needed | {p.name: value}):
                    wrong.append(f"{name}({p.name}={value!r}): {problem}")
    assert not wrong, "\n".join([f"{len(wrong)} of {count}:", *wrong])
    assert count > 5000
