"""Overrides as text; the reference for quoting is Hydra's own parser."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from run.overrides import key_of, quoted

paths = st.text(
    st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="$"), min_size=1
)


@given(st.one_of(paths, st.lists(paths, min_size=1)))
def test_a_quoted_value_comes_back_from_hydras_parser(value: str | list[str]) -> None:
    (override,) = OverridesParser.create().parse_overrides([f"data.path={quoted(value)}"])
    assert override.value() == value


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("norm=none", "norm"),
        ("++norm.eps=1", "norm.eps"),
        ("~norm", "norm"),
        ("+norm@model.qk_norm=rmsnorm", "norm@model.qk_norm"),
        ("data.path='a=b'", "data.path"),
    ],
)
def test_key_of_is_what_an_override_sets(override: str, key: str) -> None:
    assert key_of(override) == key
