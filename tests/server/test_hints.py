"""Hints name options as the interface in use does."""

from hushmote.server import hints


class TestCommandHints:
    def test_last_as_long_as_the_block(self):
        with hints.use_interface("page"):
            assert hints.option("quantile", "0.9") == "quantile 0.9"
            with hints.use_command_hints():
                assert hints.option("quantile", "0.9") == "--quantile 0.9"
            assert hints.option("quantile", "0.9") == "quantile 0.9"
