"""ε as whole micro-nats and as text in nats."""

import pytest

from hushmote.server.epsilon import check_epsilon, micro_nats, nats


class TestText:
    @pytest.mark.parametrize(
        ("micro", "text"), [(1, "0.000001"), (290_000, "0.29"), (1_000_000, "1"), (10_000_000, "10")]
    )
    def test_is_exact_without_trailing_zeros(self, micro: int, text: str):
        assert nats(micro) == text
        assert micro_nats(float(text), ValueError) == micro


class TestLimits:
    @pytest.mark.parametrize(
        ("micro", "message"),
        [
            (1_000, None),
            (16_000_000, None),
            (999, "must be from 0.001 to 16, not 0.000999"),
            (16_000_001, "must be from 0.001 to 16, not 16.000001"),
            (
                2_000_000_000_000,
                "must be from 0.001 to 16, not 2000000; boards count in millionths, but here write 2",
            ),
        ],
    )
    def test_are_those_of_boards(self, micro: int, message: str | None):
        if message is None:
            check_epsilon(micro, ValueError)
        else:
            with pytest.raises(ValueError, match=f"^epsilon {message}$"):
                check_epsilon(micro, ValueError)
