"""Each recorded case is of one class, and what is no plain agreement says why."""

from .count import AGREE, count


def test_each_case_is_of_one_class_and_says_why():
    for classes in count().values():
        for kind, cases in classes.items():
            assert all(bool(why) == (kind != AGREE) for why in cases.values()), kind
