"""A connection holds no more unacknowledged messages than its caller allows."""

from sessions import publish, subscribed, turn

from hushmote.simulator.broker import MosquittoBroker


class TestTurn:
    def test_reads_up_to_the_limit(self):
        with MosquittoBroker() as broker, subscribed(broker) as link:
            publish(broker, 30)
            for most in (1, 10, 10, 30):
                turn(link, lambda most=most: len(link.messages) >= most, most)
                assert link.turn(0.1, most)
                assert len(link.messages) == most
