"""How many recorded cases agree, and what of the others: `python -m tests.golden.count`.

Four classes, read from the modules of this folder. Converting a convention (which way time runs, which axis is the source, bits,
one step or all of them) makes no difference.

- agree: TESTED and in none of those below. Equal at the tolerance of the index.
- closed form: FORMS, name -> in which form theirs is ours (a term more, a factor less, an eps inside a logarithm). A test
  asserts the form, and of an eps that it vanishes in proportion.
- differ: DIFFERS, name -> how (another grid, another draw, nan). A test asserts how.
- not applicable: EXCLUDED, name -> why.

That the tests pass is for pytest to say. A case of no class, or of two, fails here and in `test_count.py`.
"""

import importlib
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # as pytest has it
AGREE, FORM, DIFFER, NOT_APPLICABLE = CLASSES = ("agree", "closed form", "differ", "not applicable")
TITLES = {
    FORM: "agree up to a closed form, which a test asserts",
    DIFFER: "differ; a test asserts how",
    NOT_APPLICABLE: "not applicable",
}


def group(name: str) -> str:
    """`remdm__step_cap` -> remdm; `d3pm_google.text.loss.T16` -> d3pm_google.text; `md4.grid` -> md4."""
    if "__" in name:
        return name.partition("__")[0]
    first, *rest = name.split(".")
    return f"{first}.{rest[0]}" if first == "d3pm_google" and rest else first


def count() -> dict[str, dict[str, dict[str, str]]]:
    """Group -> class -> case -> reason (empty where it agrees). Raises AssertionError at a case of no class, or of two."""
    tested: set[str] = set()
    reasons: dict[str, dict[str, str]] = {FORM: {}, DIFFER: {}, NOT_APPLICABLE: {}}
    for file in sorted(HERE.glob("test_*.py")):
        module = importlib.import_module(f"{__package__}.{file.stem}")
        tested |= set(getattr(module, "TESTED", ()))
        for kind, name in ((FORM, "FORMS"), (DIFFER, "DIFFERS"), (NOT_APPLICABLE, "EXCLUDED")):
            reasons[kind] |= getattr(module, name, {})
    assert tested >= reasons[FORM].keys() | reasons[DIFFER].keys(), "no test"
    groups: dict[str, dict[str, dict[str, str]]] = {}
    recorded = importlib.import_module(f"{__package__}.recorded")
    for folder in (recorded.TORCH, recorded.JAX, *recorded.LATER):
        for name in folder.index:
            kinds = [kind for kind, cases in reasons.items() if name in cases]
            if not kinds and name in tested:
                kinds = [AGREE]
            assert len(kinds) == 1, f"{name}: {kinds or 'no test'}"
            groups.setdefault(group(name), {}).setdefault(kinds[0], {})[name] = reasons.get(kinds[0], {}).get(name, "")
    return groups


def main() -> None:
    """Print the table, and under it each reason with how many cases it covers."""
    groups = count()
    rows = {name: [len(cases.get(kind, {})) for kind in CLASSES] for name, cases in groups.items()}
    rows["all"] = [sum(column) for column in zip(*rows.values())]
    print(f"{'group':<24}{'cases':>6}" + "".join(f"{kind:>16}" for kind in CLASSES))
    for name, numbers in rows.items():
        print(f"{name:<24}{sum(numbers):>6}" + "".join(f"{n:>16}" for n in numbers))
    for kind, title in TITLES.items():
        print(f"\n{title}")
        for name, cases in groups.items():
            for why, n in Counter(cases.get(kind, {}).values()).items():
                print(f"  {name:<22}{n:>4}  {why}")


if __name__ == "__main__":
    main()
