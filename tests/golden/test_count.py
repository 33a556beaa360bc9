"""Each recorded case is of one class, and what is no plain agreement says why; the pages have the counts."""

from pathlib import Path

from .count import AGREE, CLASSES, DIFFER, FORM, NOT_APPLICABLE, count

ROOT = Path(__file__).parents[2]


def test_each_case_is_of_one_class_and_says_why():
    for classes in count().values():
        for kind, cases in classes.items():
            assert all(bool(why) == (kind != AGREE) for why in cases.values()), kind


def test_the_pages_have_the_counts():
    rows = {name: {kind: len(classes.get(kind, {})) for kind in CLASSES} for name, classes in count().items()}
    of = {kind: sum(row[kind] for row in rows.values()) for kind in CLASSES}
    agreement, readme = (
        (ROOT / page).read_text(encoding="utf-8") for page in ("docs/evidence/agreement.md", "README.md")
    )
    for name, row in (rows | {"all": of}).items():
        assert f"| {name} | {sum(row.values())} | {' | '.join(map(str, row.values()))} |" in agreement
    for part in (
        f"Of {sum(of.values())} outputs",
        f"[{of[AGREE]} agree]",
        f"{of[FORM]} agree up to a known factor",
        f"{of[DIFFER]} differ in a known way, and {of[NOT_APPLICABLE]} have no counterpart",
    ):
        assert part in readme
