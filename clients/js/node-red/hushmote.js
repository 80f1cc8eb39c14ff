/* The node for Node-RED: readings in, reports out to an MQTT-out node, acknowledgements back from a complete node. */
const AGAIN_MS = 60_000; // until what was not acknowledged is sent again

const words = ({ locked, consent, pending, experiments }, asking = new Map()) => {
  if (locked) return { fill: 'red', text: locked };
  if (!consent) return { fill: 'grey', text: consent === null ? 'silent: nobody was asked' : 'silent: someone said no' };
  const states = Object.entries(experiments).map(([name, { state }]) => `${name} ${asking.has(name) ? 'asks' : state}`);
  return { fill: 'green', text: `${states.join(', ')}; ${pending} wait` };
};

/** Whether an MQTT-in node made it, at first: that sets both. */
const fromMqtt = (msg) => 'qos' in msg || 'retain' in msg;

module.exports = function register(RED) {
  function Hushmote(config) {
    RED.nodes.createNode(this, config);
    const [experiments, at] = [config.experiments.split(/[\s,]+/).filter(Boolean), `hushmote/v1/${config.fleet}`];
    const micro = (epsilon) => Math.round(Number(epsilon) * 1e6);
    const policy = { sum: micro(config.sum), squares: 0, epsilon: micro(config.epsilon), rules: ['sum', 'count'], experiments };
    const bytes = (hex) => (hex ? new Uint8Array(Buffer.from(hex, 'hex')) : null);
    const { key, announceKey } = this.credentials ?? {};
    const deviceId = config.device || undefined;

    const open = async () => {
      const { Folder } = await import('../folder.js'); // first: it gives Node 18 its randomness
      const { Client } = await import('../hushmote.js');
      const { AskingClient } = await import('../question.js');
      const storage = new Folder(config.folder);
      const settings = { policy, storage, deviceId, fleet: config.fleet, key: bytes(key), announceKey: bytes(announceKey) };
      const each = { ...settings, policy: { ...policy, ask: 'each' }, answers: new Folder(`${config.folder}/yes`) };
      const client = await (config.each ? AskingClient.open(each) : Client.open(settings));
      return { provision: () => Client.provision(storage, { deviceId }), client };
    };
    const opened = open();
    opened.catch((e) => this.error(e.message));

    const show = async (client) => this.status({ shape: 'dot', ...words(await client.status(), client.asking) });
    const message = (client, report) => ({
      topic: `${at}/report/${client.deviceId}`,
      payload: Buffer.from(report),
      qos: 1,
      retain: false,
    });

    const again = async (client, send) => {
      for (const report of await client.unsent()) send(message(client, report));
    };

    /* A yes to the question of a name; to what msg.payload shows, where that is a Buffer. */
    const agree = async (client, { agree: name, payload }) => {
      if (!client.agree) throw new Error('msg.agree is for a node that asks about each question');
      await client.agree(name, Buffer.isBuffer(payload) ? new Uint8Array(payload) : undefined);
    };

    /* Properties of their own, which no MQTT-in node sets: otherwise anyone who may publish at the broker could opt in. */
    const decide = async ({ client, provision }, msg) => {
      if (msg.consent !== false && fromMqtt(msg)) throw new Error('a message from MQTT can say no, but neither yes nor provision');
      if (msg.provision === true) await provision();
      if ('consent' in msg) await client.setConsent(msg.consent);
      if ('agree' in msg) await agree(client, msg);
    };

    const take = async (msg, send) => {
      const { topic = '', payload } = msg;
      const { client, provision } = await opened;
      if ('consent' in msg || 'provision' in msg || 'agree' in msg) {
        await decide({ client, provision }, msg);
      } else if (topic === 'hushmote/provision' || topic === 'hushmote/consent') {
        throw new Error('set msg.provision = true, or msg.consent to true or false: a topic no longer does it');
      } else if (topic.startsWith(`${at}/experiment/`)) {
        if (!Buffer.isBuffer(payload)) throw new Error('the MQTT-in node must give a Buffer');
        const name = topic.slice(at.length + 12);
        await again(client, send); // it comes after every connect
        await (payload[0] ? client.enroll(payload) : client.withdraw(name, payload)).catch((e) => {
          const waits = client.asking?.has(name);
          throw waits ? new Error(`nobody has said yes to this question of ${name}: msg.agree = '${name}' says it`) : e;
        });
      } else if (topic.startsWith(`${at}/report/`)) {
        // From the complete node: the broker has acknowledged it. Another node's may come as well.
        if (topic.endsWith(`/${client.deviceId}`)) await client.sent(payload);
      } else {
        const name = topic || experiments[0];
        if (!experiments.includes(name)) throw new Error(`the topic ${name} is none of ${experiments.join(', ')}`);
        const report = await client.report(name, payload).catch((e) => {
          if (!(e instanceof TypeError)) throw e;
          this.warn(e.message);
          return client.report(name, null); // whether there is a report never depends on the reading
        });
        if (report) send(message(client, report));
      }
      await show(client);
    };
    let last = Promise.resolve(); // one message at a time, in the order in which they came
    this.on('input', (msg, send, done) => {
      const turn = last.then(() => take(msg, send));
      last = turn.catch(() => {});
      turn.then(done, done);
    });

    const begin = () =>
      opened.then(async ({ client }) => (await again(client, (msg) => this.send(msg)), show(client))).catch(() => {});
    begin();
    const timer = setInterval(begin, AGAIN_MS);
    this.on('close', () => clearInterval(timer));
  }
  RED.nodes.registerType('hushmote', Hushmote, { credentials: { key: { type: 'password' }, announceKey: { type: 'text' } } });
};
