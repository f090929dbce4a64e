"""Loops over cases in one test."""

import traceback

import pytest
from support.looped import looped

SEEN = []


@pytest.mark.parametrize("third", [5, 6])
@looped("first, second", [(1, 2), (3, 4)])
def test_every_case_runs_with_the_fixtures(first, second, third, tmp_path):
    SEEN.append((first, second, third))
    assert tmp_path.is_dir()
    if first == 3:
        assert SEEN[-2:] == [(1, 2, third), (3, 4, third)]


def test_all_failures_are_raised_with_their_cases():
    @looped("a", [1, 2, 3])
    @looped("b", "xy")
    def check(a, b, most):
        if (a, b) == (3, "y"):
            raise KeyError
        assert a < most

    with pytest.raises(ExceptionGroup, match="2 of 3 cases") as caught:
        check(most=2)
    shown = "".join(traceback.format_exception(caught.value))
    for note in ("with {'a': 2}", "with {'b': 'x'}", "with {'a': 3}", "KeyError"):
        assert note in shown
    assert "with {'a': 1}" not in shown
    assert [len(inner.exceptions) for inner in caught.value.exceptions] == [2, 2]


def test_an_argument_that_the_test_does_not_have():
    with pytest.raises(AssertionError, match="c"):
        looped("c", [1])(lambda a: None)
