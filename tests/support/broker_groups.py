"""Groups of readers that share a broker's reports, by MQTT shared subscription or NATS pull consumer."""

import asyncio
from contextlib import suppress

from broker_facts import FEW_REPORTS, QUIET_S, Reader, format_share, publish, reports, topics_of

from hushmote.server.wire import topics

_ACK_WAIT_S = 2.0
_NO_GROUPS = {"group": "none", "group_dead": "-"}


class GroupByShare:
    """Two sessions on $share/..., with the newest MQTT version that the broker supports."""

    def __init__(self, version):
        self._version = version
        self._shares_reports = False

    def _member(self, broker, name):
        member = Reader(broker, name, version=self._version)
        return member.subscribe(topics.report_filter(group="group"))

    def facts(self, broker):
        """Test that two members get each report once, and what happens to a dead member's reports."""
        members = [self._member(broker, f"member{i}") for i in range(2)]
        publish(broker, reports(FEW_REPORTS, "group"))
        parts = [member.take(topics_of(FEW_REPORTS, "group")) for member in members]
        self._shares_reports = sum(map(len, parts)) == len(parts[0] | parts[1]) == FEW_REPORTS and all(parts)
        if not self._shares_reports:
            assert not any(parts), parts
            for member in members:
                member.leave()
            return _NO_GROUPS
        publish(broker, reports(FEW_REPORTS, "dead"))
        first = members[0].read(FEW_REPORTS)
        assert first > 0
        members[0].vanish()
        received = members[1].take(topics_of(FEW_REPORTS, "dead"), 2 * _ACK_WAIT_S)
        members[1].leave()
        missing = FEW_REPORTS - len(received)
        assert missing in (0, first), (missing, first)
        return {
            "group": "each report once",
            "group_dead": "go to another" if missing == 0 else "wait for it",
        }

    def after_restart(self, broker):
        """Return what happens to reports that arrive before a member reconnects."""
        if not self._shares_reports:
            return "-"
        publish(broker, reports(FEW_REPORTS, "back"))
        members = [self._member(broker, f"member{i}") for i in range(2)]
        received = set().union(*(member.take(topics_of(FEW_REPORTS, "back")) for member in members))
        for member in members:
            member.leave()
        return format_share(len(received), FEW_REPORTS) if received else "gone"


class GroupByPull:
    """Two subscriptions on one durable pull consumer of the servers' stream of MQTT messages."""

    STREAM, DURABLE = "$MQTT_msgs", "group"

    def facts(self, broker):
        """Return the same facts as GroupByShare."""
        return asyncio.run(self._facts(broker))

    def after_restart(self, broker):
        """Return the same facts as GroupByShare."""
        publish(broker, reports(FEW_REPORTS, "back"))
        return asyncio.run(self._back(broker))

    async def _connected(self, broker):
        import nats

        return await nats.connect([f"nats://{broker.host}:{n.nats}" for n in broker.nodes])

    async def _facts(self, broker):
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        clients = [await self._connected(broker) for _ in range(2)]
        config = ConsumerConfig(
            durable_name=self.DURABLE,
            filter_subject="$MQTT.msgs.hushmote.v1.*.report.*",
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=_ACK_WAIT_S,
            deliver_policy=DeliverPolicy.NEW,  # leaves other sessions' queued messages alone
        )
        await clients[0].jetstream().add_consumer(self.STREAM, config)
        members = [await c.jetstream().pull_subscribe_bind(self.DURABLE, self.STREAM) for c in clients]
        await asyncio.to_thread(publish, broker, reports(FEW_REPORTS, "group"))
        parts: list[set[str]] = [set(), set()]
        while sum(map(len, parts)) < FEW_REPORTS:
            before = sum(map(len, parts))
            for part, member in zip(parts, members, strict=True):
                part |= await self._fetch(member, 10)
            assert sum(map(len, parts)) > before, parts
        exactly_once = sum(map(len, parts)) == len(parts[0] | parts[1]) == FEW_REPORTS and all(parts)
        await asyncio.to_thread(publish, broker, reports(FEW_REPORTS, "dead"))
        fetched = await members[0].fetch(FEW_REPORTS // 2, timeout=QUIET_S)
        await clients[0].close()
        received = await self._drain(members[1], FEW_REPORTS, 2 * _ACK_WAIT_S)
        await clients[1].close()
        return {
            "group": "each report once" if exactly_once else "not each report once",
            "group_dead": "go to another" if len(fetched) and len(received) == FEW_REPORTS else "are lost",
        }

    async def _back(self, broker):
        client = await self._connected(broker)
        member = await client.jetstream().pull_subscribe_bind(self.DURABLE, self.STREAM)
        received = await self._drain(member, 2 * FEW_REPORTS, QUIET_S)
        await client.close()
        return format_share(
            len(received & {self._subject(topic) for topic in topics_of(FEW_REPORTS, "back")}), FEW_REPORTS
        )

    @staticmethod
    def _subject(topic):
        return "$MQTT.msgs." + topic.replace("/", ".")

    async def _fetch(self, member, count, timeout=0.2):
        received = set()
        with suppress(TimeoutError):
            for message in await member.fetch(count, timeout=timeout):
                assert message.subject not in received
                received.add(message.subject)
                await message.ack_sync()
        return received

    async def _drain(self, member, wanted, quiet_s):
        received = set()
        while len(received) < wanted and (part := await self._fetch(member, FEW_REPORTS, quiet_s)):
            received |= part
        return received
