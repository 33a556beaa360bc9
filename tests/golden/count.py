"""How many recorded cases agree, differ by declaration, or are not applicable and why: `python -m tests.golden.count`.

Read from the modules of this folder: TESTED (names), DIFFERS (name -> what differs; these are TESTED too: a test shows the
difference) and EXCLUDED (name -> why it is not applicable here). A case is tested if one module tests it. That the tests pass is
for pytest to say, and that no case is forgotten for the completeness test of each module.
"""

import importlib
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # as pytest has it


def group(name: str) -> str:
    """`remdm__step_cap` -> remdm; `d3pm_google.text.loss.T16` -> d3pm_google.text; `md4.grid` -> md4."""
    if "__" in name:
        return name.partition("__")[0]
    first, *rest = name.split(".")
    return f"{first}.{rest[0]}" if first == "d3pm_google" and rest else first


def count() -> dict[str, dict[str, dict[str, str]]]:
    """Group -> {"agree", "differ", "not applicable", "later"} -> case -> reason (empty where it agrees)."""
    tested: set[str] = set()
    differs: dict[str, str] = {}
    excluded: dict[str, str] = {}
    for file in sorted(HERE.glob("test_*.py")):
        module = importlib.import_module(f"tests.golden.{file.stem}")
        tested |= set(getattr(module, "TESTED", ()))
        differs |= getattr(module, "DIFFERS", {})
        excluded |= getattr(module, "EXCLUDED", {})
    found: dict[str, dict[str, dict[str, str]]] = {}
    recorded = importlib.import_module("tests.golden.recorded")
    for folder in (recorded.TORCH, recorded.JAX):
        for name in folder.index:
            if name in differs:
                kind, why = "differ", differs[name]
            elif name in tested:
                kind, why = "agree", ""
            elif name in excluded:
                kind, why = "not applicable", excluded[name]
            else:
                kind, why = "later", ""
            found.setdefault(group(name), {}).setdefault(kind, {})[name] = why
    return found


def main() -> None:
    """Print the table, and under it each reason with how many cases it covers."""
    found = count()
    kinds = ("agree", "differ", "not applicable", "later")
    print(f"{'group':<24}{'cases':>6}{'agree':>7}{'differ':>8}{'not applicable':>16}{'no test yet':>13}")
    for name, cases in found.items():
        numbers = [len(cases.get(kind, {})) for kind in kinds]
        print(f"{name:<24}{sum(numbers):>6}{numbers[0]:>7}{numbers[1]:>8}{numbers[2]:>16}{numbers[3]:>13}")
    totals = [sum(len(cases.get(kind, {})) for cases in found.values()) for kind in kinds]
    print(f"{'all':<24}{sum(totals):>6}{totals[0]:>7}{totals[1]:>8}{totals[2]:>16}{totals[3]:>13}")
    for kind, title in (("differ", "differ by declaration; a test shows the difference"), ("not applicable",) * 2):
        print(f"\n{title}")
        for name, cases in found.items():
            for why, n in Counter(cases.get(kind, {}).values()).items():
                print(f"  {name:<22}{n:>4}  {why}")


if __name__ == "__main__":
    main()
