"""Find, create and delete the durable pull consumer on NATS servers."""

import asyncio
import contextlib
from dataclasses import dataclass

from nats.aio.client import Client
from nats.errors import Error
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy
from nats.js.errors import APIError, NotFoundError

from ...errors import HushmoteError
from ...wire.subjects import STREAM

# If an aggregator dies, the others receive its messages after this time. If its store blocks it for longer,
# it rejects duplicates. `nats consumer edit` can change this and the number of messages in transit.
ACK_WAIT_S = 60.0
_MAX_IN_TRANSIT = 500_000
_MAX_WAITING = 2_048  # requests; each aggregator has two
_ANSWER_S = 5.0
_ELECTION_S, _ELECTION_TRIALS = 0.5, 20
_NO_CONSUMER = 10014


class ConsumerRefused(HushmoteError):
    """Raised when a consumer cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Consumer:
    """A consumer, shared by all aggregators with one client id.

    Attributes:
        name: The client id.
        subjects: The subjects of the reports.
    """

    name: str
    subjects: tuple[str, ...]

    async def find(self, client: Client) -> ConsumerInfo | None:
        """Return the servers' consumer with this name, or None.

        Raises:
            ConsumerRefused: If it belongs to another program.
            Error: If nats-py reports an error.
        """
        try:
            info = await client.jsm(timeout=_ANSWER_S).consumer_info(STREAM, self.name)
        except NotFoundError as e:
            if e.err_code == _NO_CONSUMER:
                return None
            raise
        self._check(info)
        return info

    async def make(self, client: Client) -> None:
        """Create the consumer and wait until it has a leader; several processes may create it concurrently.

        Raises:
            ConsumerRefused: If the servers refuse to create it.
            Error: If nats-py reports an error.
        """
        is_single = len(self.subjects) == 1
        config = ConsumerConfig(
            name=self.name,
            durable_name=self.name,
            description="counted into a store by hushmote serve",
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_WAIT_S,
            max_deliver=-1,
            max_ack_pending=_MAX_IN_TRANSIT,
            max_waiting=_MAX_WAITING,
            filter_subject=self.subjects[0] if is_single else None,
            filter_subjects=None if is_single else list(self.subjects),
        )
        try:
            await client.jsm(timeout=_ANSWER_S).add_consumer(STREAM, config)
        except APIError as e:
            if e.code == 400:
                raise ConsumerRefused(
                    f"they refuse to create the consumer {self.name}: {e.description}"
                ) from None
            raise
        # Only the consumer's leader answers this; without a leader, requests for messages get no answer.
        for _ in range(_ELECTION_TRIALS):
            with contextlib.suppress(Error):
                await client.jsm(timeout=_ELECTION_S).consumer_info(STREAM, self.name)
                return
            await asyncio.sleep(_ELECTION_S / 5)

    async def delete(self, client: Client) -> None:
        """Delete the consumer for all aggregators that pull from it.

        Raises:
            Error: If nats-py reports an error.
        """
        await client.jsm(timeout=_ANSWER_S).delete_consumer(STREAM, self.name)

    def _check(self, info: ConsumerInfo) -> None:
        config = info.config
        subjects = config.filter_subjects or [config.filter_subject or ">"]
        if set(subjects) != set(self.subjects):
            raise ConsumerRefused(
                f"the consumer {self.name} is for other fleets, {', '.join(sorted(subjects))}: "
                "use another client_id, or retire it with the fleets it is for"
            )
        if (
            config.ack_policy != AckPolicy.EXPLICIT
            or config.deliver_subject is not None
            or (config.max_deliver or -1) > 0
            or config.headers_only  # messages would be empty but acknowledged
            or config.inactive_threshold  # it would be deleted while no aggregator is connected
            or config.mem_storage
        ):
            raise ConsumerRefused(
                f"the consumer {self.name} was not created by hushmote: use another client_id, or delete it"
            )
