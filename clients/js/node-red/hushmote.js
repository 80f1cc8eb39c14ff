/* The Node-RED node: receives readings, sends reports to an MQTT-out node, and gets acknowledgements from a complete node. */
const PREFIX = /^(?!.{65})([\w.-]+(\/[\w.-]+)*)?$/;
const RESEND_MS = 60_000; // interval for resending unacknowledged reports

const statusOf = ({ locked, consent, pending, experiments }, asking = new Map()) => {
  if (locked) return { fill: 'red', text: locked };
  if (!consent) return { fill: 'grey', text: consent === null ? 'waiting for an opt-in' : 'opted out' };
  const states = Object.entries(experiments).map(([name, { state }]) => `${name} ${asking.has(name) ? 'asks' : state}`);
  return { fill: 'green', text: `${states.join(', ')}; ${pending} unsent` };
};

/** Return whether a message originated in an MQTT-in node, which sets both properties. */
const fromMqtt = (msg) => 'qos' in msg || 'retain' in msg;

module.exports = function register(RED) {
  function Hushmote(config) {
    RED.nodes.createNode(this, config);
    const experiments = config.experiments.split(/[\s,]+/).filter(Boolean);
    const prefix = (config.prefix ?? '').replace(/\/$/, ''); // nodes of earlier versions have none
    const at = `${prefix && `${prefix}/`}hushmote/v1/${config.fleet}`;
    const micro = (epsilon) => Math.round(Number(epsilon) * 1e6);
    const policy = { sum: micro(config.sum), squares: 0, epsilon: micro(config.epsilon), rules: ['sum', 'count'], experiments };
    /* Buffer.from() alone would drop everything after the first wrong digit. */
    const bytes = (hex, name, digits) => {
      if (!hex) return null;
      const isKey = hex.length === digits && /^[0-9a-f]*$/i.test(hex);
      if (!isKey) throw new Error(`${name} must be ${digits} hex digits: copy it from what \`hushmote provision\` wrote`);
      return new Uint8Array(Buffer.from(hex, 'hex'));
    };
    const { key, announceKey } = this.credentials ?? {};
    const deviceId = config.device || undefined;

    const open = async () => {
      if (!PREFIX.test(prefix)) {
        throw new Error('the topic prefix must be at most 64 of A-Z, a-z, 0-9, _, . and -, with / between levels, as in tenants/acme');
      }
      const { Folder } = await import('../folder.js'); // must be first, because it defines crypto on Node 18
      const { Client } = await import('../hushmote.js');
      await import('../pgr.js');
      await import('../scale.js');
      await import('../sw.js');
      const { AskingClient } = await import('../question.js');
      const storage = new Folder(config.folder);
      const keys = { key: bytes(key, 'key', 64), announceKey: bytes(announceKey, 'announceKey', 128) };
      const settings = { policy, storage, deviceId, fleet: config.fleet, ...keys };
      const each = { ...settings, policy: { ...policy, ask: 'each' }, answers: new Folder(`${config.folder}/yes`) };
      const client = await (config.each ? AskingClient.open(each) : Client.open(settings));
      return { provision: () => Client.provision(storage, { deviceId }), client };
    };
    const opened = open();
    opened.catch((e) => this.error(e.message));

    const show = async (client) => this.status({ shape: 'dot', ...statusOf(await client.status(), client.asking) });
    const message = (client, report) => ({
      topic: `${at}/report/${client.deviceId}`,
      payload: Buffer.from(report),
      qos: 1,
      retain: false,
    });

    const resend = async (client, send) => {
      for (const report of await client.unsent()) send(message(client, report));
    };

    /* Opt in to an experiment's question. If msg.payload is a Buffer, it is the question that was shown. */
    const agree = async (client, { agree: name, payload }) => {
      if (!client.agree) throw new Error('msg.agree requires a node with Ask each');
      await client.agree(name, Buffer.isBuffer(payload) ? new Uint8Array(payload) : undefined);
    };

    /* Answers are separate message properties, which MQTT-in nodes never set. Otherwise anyone who may publish to the broker
       could opt in. */
    const decide = async ({ client, provision }, msg) => {
      if (msg.consent !== false && fromMqtt(msg)) throw new Error('a message from MQTT can opt out, but not opt in or provision');
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
        throw new Error('set msg.provision = true, or msg.consent to true or false; topics no longer do this');
      } else if (topic.startsWith(`${at}/experiment/`)) {
        if (!Buffer.isBuffer(payload)) throw new Error('the MQTT-in node must output a Buffer');
        const name = topic.slice(at.length + 12);
        await resend(client, send); // experiments arrive after every connect
        const { checkName } = await import('../door.js');
        checkName(payload, name);
        await (payload[0] ? client.enroll(payload) : client.withdraw(name, payload)).catch((e) => {
          const isWaiting = client.asking?.has(name);
          throw isWaiting ? new Error(`nobody has opted in to this question of ${name}; to opt in, send msg.agree = '${name}'`) : e;
        });
      } else if (topic.startsWith(`${at}/report/`)) {
        // The complete node sends reports that the broker has acknowledged, possibly including other nodes' reports.
        if (topic.endsWith(`/${client.deviceId}`)) await client.sent(payload);
      } else {
        const name = topic || experiments[0];
        if (!experiments.includes(name)) throw new Error(`unknown topic ${name}; expected one of ${experiments.join(', ')}`);
        const report = await client.report(name, payload).catch((e) => {
          if (!(e instanceof TypeError)) throw e;
          this.warn(e.message);
          return client.report(name, null); // whether a report is made must not depend on the reading
        });
        if (report) send(message(client, report));
      }
      await show(client);
    };
    let last = Promise.resolve(); // handle one message at a time, in the order of arrival
    this.on('input', (msg, send, done) => {
      const turn = last.then(() => take(msg, send));
      last = turn.catch(() => {});
      turn.then(done, done);
    });

    const begin = () =>
      opened.then(async ({ client }) => (await resend(client, (msg) => this.send(msg)), show(client))).catch(() => {});
    begin();
    const timer = setInterval(begin, RESEND_MS);
    this.on('close', () => clearInterval(timer));
  }
  RED.nodes.registerType('hushmote', Hushmote, { credentials: { key: { type: 'password' }, announceKey: { type: 'text' } } });
};
