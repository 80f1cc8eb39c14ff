// Usage: node js_rig.mjs. Each input line is a list of [job, argument, ...]; each job's answer is printed as one line.
// Bytes are {$hex}, large integers are {$big}.
import { writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { Door } from '../../clients/js/door.js';
import { Folder } from '../../clients/js/folder.js';
import { LoggedClient, verifyProof, withLog } from '../../clients/js/log.js';
import '../../clients/js/prefix.js';
import { LastReports, describe, exportJson, preview } from '../../clients/js/preview.js';
import { AskingClient, question } from '../../clients/js/question.js';
import '../../clients/js/scale.js';
import '../../clients/js/sw.js';
import { Client, parseExperiment, truthThreshold } from '../../clients/js/hushmote.js';

const revive = (_key, x) => {
  if (x?.$big !== undefined) return BigInt(x.$big);
  if (x?.$float !== undefined) return Number(x.$float);
  return x?.$hex !== undefined ? Uint8Array.from(Buffer.from(x.$hex, 'hex')) : x;
};
const shown = (_key, x) => {
  if (typeof x === 'bigint') return String(x);
  return x instanceof Uint8Array ? Buffer.from(x).toString('hex') : x;
};
const failure = (e) => `${e.name}: ${e.message}`;
const cache = new Map();
const parse = async (payload) =>
  cache.get(String(payload)) ?? cache.set(String(payload), await parseExperiment(payload)).get(String(payload));

/** A random generator that plays back scripted draws, and fails if a call does not match the script. */
class Script {
  constructor(draws) {
    this.draws = [...draws];
  }
  next(name, argument) {
    const [expected, n, outcome] = this.draws.shift() ?? [];
    if (expected !== name || n !== argument) throw new Error(`drew ${name}(${argument}), not ${expected}(${n})`);
    return outcome;
  }
  below = (n) => this.next('below', n);
  bernoulli = (threshold) => Boolean(this.next('bernoulli', threshold));
}

/** Return the exact probability of each outcome of run(rng), by running every sequence of draws once. */
function distribution(run) {
  const results = new Map();
  const script = []; // [choice, number of choices]
  do {
    let at = 0;
    let [over, under] = [1n, 1n];
    const choose = (weights) => {
      if (at === script.length) script.push([0, weights.length]);
      const choice = script[at++][0];
      over *= weights[choice];
      return choice;
    };
    const rng = {
      below: (n) => ((under *= BigInt(n)), choose(Array(n).fill(1n))),
      bernoulli: (t) => ((under *= 2n ** 30n), choose([BigInt(2 ** 30 - t), BigInt(t)]) === 1),
    };
    const outcome = run(rng);
    const sums = results.get(outcome) ?? results.set(outcome, new Map()).get(outcome);
    sums.set(under, (sums.get(under) ?? 0n) + over);
    while (script.length && script.at(-1)[0] === script.at(-1)[1] - 1) script.pop();
    if (script.length) script.at(-1)[0]++;
  } while (script.length);
  return [...results].map(([outcome, sums]) => [outcome, [...sums]]);
}

/** Records in memory. One write fails as specified: raise, raise-after, lost, torn, cut, cut-after, torn-cut. */
class Memory {
  constructor({ records = [], fault, at }) {
    Object.assign(this, { records: new Map(records), fault, left: at });
  }
  read = async () => [...this.records];
  async write(number, record) {
    if (Math.max(0, ...this.records.keys()) >= number) return false;
    const now = this.fault && this.left-- === 0 ? this.fault : '';
    const kept = !now || now.endsWith('after') ? record : now.startsWith('torn') && record.slice(0, record.length / 2);
    if (kept) this.records.set(number, kept);
    if (kept === record) this.records.delete(number - 2);
    this.cut = now.includes('cut'); // the power is off, so later calls are not made
    if (now && now !== 'lost') throw Object.assign(new Error('no space'), { code: 'ENOSPC' });
    return true;
  }
}

/** Return the client's random generator. */
async function generator() {
  const policy = { sum: 0, squares: 0, epsilon: 0, rules: [], experiments: [] };
  return (await Client.open({ policy, storage: new Memory({}) })).rng;
}

const jobs = {
  threshold: truthThreshold,
  async parse(payload) {
    const { domain, bucket, randomize, ...exp } = await parseExperiment(payload);
    return { ...exp, domain: BigInt(domain) };
  },
  bucket: async (payload, value) => (await parse(payload)).bucket(value),
  async code(payload, index, draws) {
    const rng = new Script(draws);
    const code = (await parse(payload)).randomize(index, rng);
    return rng.draws.length ? 'unused draws' : code;
  },
  async distribution(payload, value) {
    const exp = await parse(payload);
    const index = await exp.bucket(value);
    return distribution((rng) => exp.randomize(index, rng));
  },
  /** Count the outcomes of the client's random generator. */
  async frequencies(count, name, argument, outcomes) {
    const rng = await generator();
    const results = Array(outcomes).fill(0);
    for (let i = 0; i < count; i++) results[Number(rng[name](argument))]++;
    return results;
  },
  /** Return the random generator's answer if all random bytes are equal. */
  async stuck(byte, name, argument) {
    const rng = await generator();
    crypto.getRandomValues = (x) => x.fill(byte);
    try {
      return rng[name](argument);
    } finally {
      delete crypto.getRandomValues;
    }
  },
  /** Make a client's calls, [method, argument, ...]. Return the answers and the final records. */
  async play({ storage, settings, provision, draws, url, payloads = [], yes = {} }, calls) {
    const kept = storage.folder ? new Folder(storage.folder) : new Memory(storage);
    const agreed = storage.folder ? new Folder(`${storage.folder}/yes`) : new Memory(yes);
    const open = () => {
      const options = { ...settings, storage: kept };
      const { ask, log } = settings.policy ?? {};
      const Kind = log === undefined ? [Client, AskingClient] : [LoggedClient, withLog(AskingClient)];
      return ask ? Kind[1].open({ ...options, answers: agreed }) : Kind[0].open(options);
    };
    const answers = [];
    try {
      if (provision) await Client.provision(kept, provision);
      let client = await open();
      if (draws) client.rng = new Script(draws);
      for (const payload of payloads) await client.enroll(payload);
      const extraCalls = {
        stick: () => void (crypto.getRandomValues = (x) => x.fill(7)),
        records: (records) => void (kept.records = new Map(records)),
        acknowledge: async () => {
          for (const report of await client.unsent()) await client.sent(report);
        },
        cycle: async (name, value) => {
          const report = await client.report(name, value);
          if (report) writeSync(1, `"${Buffer.from(report).toString('hex')}"\n`);
          if (report) await client.sent(report);
        },
        reportThenNo: async () => {
          const [write, optOuts] = [kept.write, []];
          kept.write = (...record) => {
            kept.write = write;
            optOuts.push(client.setConsent(false));
            return kept.write(...record);
          };
          const report = await client.report('e', true);
          await Promise.all(optOuts);
          return report;
        },
        yesThenNo: () => Promise.allSettled([client.setConsent(true), client.setConsent(false)]).then(() => null),
        consent: () => client.consent,
        groups: (groups) => void Object.assign(client.groups, groups),
        preview: (...values) => preview(client, ...values),
        describe: (report) => describe(client, report),
        export: async (reports) => {
          const last = new LastReports();
          for (const [at, report] of reports) await last.add(client, report, new Date(1000 * at));
          return exportJson(client, last);
        },
        door: async (name, ...values) => {
          const door = new Door(client, url);
          return [await door[name](...values), door.error];
        },
        asking: () => [...client.asking.keys()],
        restart: async () => void (client = await open()),
        elsewhere: async (name, ...values) => (await open())[name](...values),
        damage: () => agreed.records.set(Math.max(...agreed.records.keys()), 'damaged'),
        fail: (fault) => void Object.assign(agreed, { fault, left: 0 }),
        atOnce: (...all) => Promise.all(all.map(([name, ...values]) => client[name](...values).catch(failure))),
      };
      for (const [method, ...values] of calls) {
        const answer = await (async () => (extraCalls[method] ?? client[method].bind(client))(...values))().catch(failure);
        answers.push(answer ?? null);
        if (kept.cut) break;
      }
    } catch (e) {
      answers.push(failure(e));
    }
    delete crypto.getRandomValues; // undoes "stick"
    return { answers, records: storage.folder ? null : [...kept.records], yes: storage.folder ? null : [...agreed.records] };
  },
  /** Play a lifetime's steps, [step, argument, ...], with restarts. Return each step's answer and the status after it. */
  async lifetime(settings, consent, steps) {
    const storage = new Memory({});
    const answers = new Memory({});
    await Client.provision(storage, { consent, deviceId: settings.deviceId });
    const open = () => (settings.policy.ask ? AskingClient.open({ ...settings, storage, answers }) : Client.open({ ...settings, storage }));
    let client = await open();
    const noAtWrite = (call) => {
      const [write, optOuts] = [storage.write, []];
      storage.write = (...record) => {
        storage.write = write;
        optOuts.push(client.setConsent(false));
        return storage.write(...record);
      };
      return call().finally(() => ((storage.write = write), Promise.all(optOuts)));
    };
    const extraCalls = {
      restart: async () => void (client = await open()),
      agree: async (name, payload) => void (await client.agree(name, payload)),
      enroll: async (payload) => void (await client.enroll(payload)),
      sent: async () => {
        const [report] = await client.unsent();
        if (report) await client.sent(report);
      },
      reportThenNo: (name, value) => noAtWrite(() => client.report(name, value)),
      yesThenNo: () => noAtWrite(() => client.setConsent(true)),
    };
    const results = [];
    for (const [step, ...values] of steps) {
      const answer = await (async () => (extraCalls[step] ?? client[step].bind(client))(...values))().catch((e) => e.name);
      const { consent: now, pending, sum, squares, experiments } = await client.status();
      const lines = Object.values(experiments).map(({ state, reports, left }) => [state, reports, left]);
      results.push([answer ?? null, now, pending, sum, squares, lines, [...(client.asking?.keys() ?? [])].sort()]);
    }
    return results;
  },
  question,
  /** Return an entry's index in a log. */
  proof: verifyProof,
  async open(settings, asking) {
    await (asking ? AskingClient : Client).open({ storage: new Memory({}), answers: new Memory({}), ...settings });
  },
  /** Send messages to the Node-RED node at the same time. Return each one's output topics, warnings and errors. */
  async node(config, messages) {
    const results = messages.map(() => []);
    const node = { credentials: config.credentials ?? {}, status() {}, error() {}, on: (event, run) => (node[event] = run) };
    const registerType = (_name, Hushmote) => Hushmote.call(node, config);
    createRequire(import.meta.url)('../../clients/js/node-red/hushmote.js')({ nodes: { createNode() {}, registerType } });
    let at = 0;
    node.warn = (text) => results[at].push(text);
    const send = ({ payload, ...message }, i) =>
      new Promise((done) => {
        const output = ({ topic }) => results[i].push(topic.slice(0, 24));
        const bytes = payload instanceof Uint8Array ? Buffer.from(payload) : payload;
        node.input({ ...message, payload: bytes }, output, (e) => done((at++, e && results[i].push(e.message))));
      });
    await Promise.all(messages.map(send));
    node.close();
    return results;
  },
};

writeSync(1, 'ready\n');
for await (const line of createInterface(process.stdin)) {
  for (const [job, ...values] of JSON.parse(line, revive)) {
    const answer = await (async () => jobs[job](...values))().catch(failure);
    console.log(JSON.stringify(answer ?? null, shown));
  }
}
