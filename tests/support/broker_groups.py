"""Readers that divide a broker's reports: by MQTT's shared subscription, by NATS's pull consumer."""

import asyncio
from contextlib import suppress

from broker_facts import FEW, QUIET_S, Reader, of, publish, reports, share_of

from hushmote.server.wire import topics

_ACK_WAIT_S = 2.0
_NONE = {"group": "none", "group_dead": "-"}


class GroupByShare:
    """Two sessions on $share/..., with the newest MQTT that the broker speaks."""

    def __init__(self, version):
        self._version = version
        self._there = False

    def _member(self, broker, name):
        one = Reader(broker, name, version=self._version)
        return one.subscribe(topics.report_filter(group="group"))

    def facts(self, broker):
        """Whether two members get each report once, and what becomes of one member's when it dies."""
        members = [self._member(broker, f"member{i}") for i in range(2)]
        publish(broker, reports(FEW, "group"))
        parts = [one.take(of(FEW, "group")) for one in members]
        self._there = sum(map(len, parts)) == len(parts[0] | parts[1]) == FEW and all(parts)
        if not self._there:
            assert not any(parts), parts
            for one in members:
                one.leave()
            return _NONE
        publish(broker, reports(FEW, "dead"))
        first = members[0].read(FEW)
        assert first > 0
        members[0].vanish()
        came = members[1].take(of(FEW, "dead"), 2 * _ACK_WAIT_S)
        members[1].leave()
        gone = FEW - len(came)
        assert gone in (0, first), (gone, first)
        return {"group": "each report once", "group_dead": "goes to another" if gone == 0 else "waits for it"}

    def after_restart(self, broker):
        """Return what happens to reports that arrive before a member is back."""
        if not self._there:
            return "-"
        publish(broker, reports(FEW, "back"))
        members = [self._member(broker, f"member{i}") for i in range(2)]
        came = set().union(*(one.take(of(FEW, "back")) for one in members))
        for one in members:
            one.leave()
        return share_of(len(came), FEW) if came else "gone"


class GroupByPull:
    """Two subscriptions on one durable pull consumer of the servers' stream of MQTT messages."""

    STREAM, DURABLE = "$MQTT_msgs", "group"

    def facts(self, broker):
        """As GroupByShare has it."""
        return asyncio.run(self._facts(broker))

    def after_restart(self, broker):
        """As GroupByShare has it."""
        publish(broker, reports(FEW, "back"))
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
            deliver_policy=DeliverPolicy.NEW,  # what waits for another's session is left to it
        )
        await clients[0].jetstream().add_consumer(self.STREAM, config)
        members = [await c.jetstream().pull_subscribe_bind(self.DURABLE, self.STREAM) for c in clients]
        await asyncio.to_thread(publish, broker, reports(FEW, "group"))
        parts: list[set[str]] = [set(), set()]
        while sum(map(len, parts)) < FEW:
            before = sum(map(len, parts))
            for part, member in zip(parts, members, strict=True):
                part |= await self._fetch(member, 10)
            assert sum(map(len, parts)) > before, parts
        once = sum(map(len, parts)) == len(parts[0] | parts[1]) == FEW and all(parts)
        await asyncio.to_thread(publish, broker, reports(FEW, "dead"))
        held = await members[0].fetch(FEW // 2, timeout=QUIET_S)
        await clients[0].close()
        came = await self._drain(members[1], FEW, 2 * _ACK_WAIT_S)
        await clients[1].close()
        return {
            "group": "each report once" if once else "not each report once",
            "group_dead": "goes to another" if len(held) and len(came) == FEW else "is lost",
        }

    async def _back(self, broker):
        client = await self._connected(broker)
        member = await client.jetstream().pull_subscribe_bind(self.DURABLE, self.STREAM)
        came = await self._drain(member, 2 * FEW, QUIET_S)
        await client.close()
        return share_of(len(came & {self._subject(topic) for topic in of(FEW, "back")}), FEW)

    @staticmethod
    def _subject(topic):
        return "$MQTT.msgs." + topic.replace("/", ".")

    async def _fetch(self, member, count, timeout=0.2):
        came = set()
        with suppress(TimeoutError):
            for message in await member.fetch(count, timeout=timeout):
                assert message.subject not in came
                came.add(message.subject)
                await message.ack_sync()
        return came

    async def _drain(self, member, wanted, quiet_s):
        came = set()
        while len(came) < wanted and (part := await self._fetch(member, FEW, quiet_s)):
            came |= part
        return came
