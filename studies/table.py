"""Results of `zellige evaluate` as one table, the best first: python studies/table.py FOLDER/*/evaluate-*.json"""

import sys
from pathlib import Path

from zellige.evaluation.result import Result


def main(paths: list[str]) -> int:
    rows = []
    for path in map(Path, paths):
        result = Result.from_json(path)
        terms = " + ".join(f"{value:.3f} {name}" for name, value in result.terms.items() if abs(value) > 5e-4)
        rows.append((result.value, path.parent.name, str(result), terms, f"{result.about['parameters'] / 1e6:.2f}M"))
    print("| run | test | nats/sequence | parameters |\n|---|---|---|---|")
    for _, name, number, terms, size in sorted(rows):
        print(f"| {name} | {number} | {terms} | {size} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
