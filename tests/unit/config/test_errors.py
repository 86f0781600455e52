"""The errors of a run cross processes."""

import pickle

import pytest

from lightrft_ray.config import DataFault, UserError
from lightrft_ray.config.errors import InfrastructureError
from lightrft_ray.data.media_source import MediaError


def _with_subclasses(kind: type[Exception]) -> list[type[Exception]]:
    return [kind, *(each for sub in kind.__subclasses__() for each in _with_subclasses(sub))]


ALL = [
    each for kind in (UserError, DataFault, InfrastructureError) for each in _with_subclasses(kind)
]


@pytest.mark.parametrize("kind", ALL)
def test_an_error_says_the_same_in_another_process(kind: type[Exception]) -> None:
    assert MediaError in ALL
    error = pickle.loads(pickle.dumps(kind("what is wrong")))
    assert type(error) is kind and str(error) == "what is wrong"
