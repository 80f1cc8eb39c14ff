"""Advanced composition, the first theorem in which the nats of k reports grow like √k."""

from decimal import Decimal

from ..epsilon import MICRO
from .theorem import History, Kind, Theorem, above, exact


class Advanced(Theorem):
    """Σε_i (e^{ε_i} - 1) + sqrt(2 Σε_i² ln(1/δ')) <= total, with δ' = delta - Σδ_i.

    For k reports of one ε this is ε sqrt(2k ln(1/δ')) + kε(e^ε - 1): (total, kδ + δ')-LDP. The ε_i and δ_i
    are fixed before the first report; what is asked may be chosen on the way. (A much-read tutorial's code
    lacks the ε before the root: at ε = 0.5, k = 350, δ' = 0.1 it prints 153.67; the theorem says 133.60.)

    Dwork, Rothblum, Vadhan 2010, Boosting and differential privacy, FOCS, Theorem III.3.
    """

    name = "advanced"
    rule = "count"
    kind = Kind.APPROXIMATE
    words = (
        "All reports of a board together are ({total}, {delta})-LDP: {total}-LDP except with probability "
        "{delta}. Every report has the same ε, fixed beforehand."
    )

    def loss(self, history: History) -> Decimal:
        """The formula; infinite where the reports' own δ leave nothing of delta."""
        slack = exact(self.delta) - history.delta
        if slack <= 0:
            return Decimal("Infinity")
        drift = Decimal(0)
        for report, n in history.runs:
            epsilon = Decimal(report.epsilon) / MICRO
            drift += n * epsilon * (epsilon.exp() - 1)
        return above(drift + (-2 * Decimal(history.squares) / MICRO**2 * slack.ln()).sqrt())
