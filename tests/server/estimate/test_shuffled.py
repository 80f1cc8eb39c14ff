"""The largest ε of a report whose histogram meets a target."""

from hushmote.device.ldp_client import Experiment
from hushmote.server.estimate.shuffled import histogram_epsilon, local_epsilon_for
from hushmote.server.experiments.payload import chosen_fields, experiment_over
from hushmote.server.mechanisms.workload import FREQUENCIES


class TestLocalEpsilon:
    def test_is_the_largest_even_if_cells_change(self) -> None:
        """From 1.51 to 1.55, the mechanism's cells reveal too much; at 1.86 it has others."""

        def design(micro: int) -> Experiment:
            return experiment_over(16, micro, chosen_fields(16, micro, FREQUENCIES, "auto"))

        micro = local_epsilon_for(design, 1000, 0.2)
        assert micro is not None
        below, allowed, beyond = (
            histogram_epsilon(design(x), 1000) for x in (1_530_000, micro, micro * 1002 // 1000)
        )
        assert micro > 1_530_000
        assert below > 0.2
        assert allowed <= 0.2 < beyond
