"""Several cases in one test."""

import functools
import inspect


def looped(names, cases):
    """Decorate a test to run with all cases, as ``pytest.mark.parametrize`` would, in a loop.

    It is for small cases: a test of its own costs milliseconds, twice with parallel workers. The
    cases share the fixtures. The failures are raised together, each with a note of its arguments.
    """
    names, cases = [name.strip() for name in names.split(",")], list(cases)
    assert cases

    def decorate(test):
        signature = inspect.signature(test)

        @functools.wraps(test)
        def each(**given):
            failures = []
            for case in cases:
                arguments = dict(zip(names, case if len(names) > 1 else [case], strict=True))
                try:
                    test(**given, **arguments)
                except Exception as failure:
                    failure.add_note(f"with {arguments}")
                    failures.append(failure)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(cases)} cases failed", failures)

        others = [p for name, p in signature.parameters.items() if name not in names]
        assert len(others) + len(names) == len(signature.parameters), names
        each.__signature__ = signature.replace(parameters=others)
        return each

    return decorate
