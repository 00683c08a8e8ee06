"""A user's mistake on one line."""

from run.errors import one_line


def test_one_line_says_the_users_mistake_without_its_wrapping() -> None:
    try:
        try:
            raise ValueError("data.split is wrong")
        except ValueError as inner:
            raise RuntimeError("Error in call to target\nfull_key: data") from inner
    except RuntimeError as error:
        assert one_line(error) == "data.split is wrong"
    assert one_line(RuntimeError()) == "RuntimeError"
