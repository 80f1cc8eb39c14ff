/**
 * @file Hushmote's JavaScript client: randomize a reading, debit the privacy budget, return a report.
 *
 * Only this file sees readings, in browsers and in Node. It is the counterpart of device/ldp_client.py, as specified in
 * docs/wire-format.md. Read it from top to bottom: arithmetic, randomness, experiments (value -> index -> code), the
 * ledger, the client. Ledger storage and the connection through `hushmote door` are in separate files.
 *
 * Units: epsilon is an integer number of micro-nats (1_000_000 is epsilon = 1), its squares are in micro-nats
 * squared, numbers are in milli-units. Values that can exceed 2^53 are BigInts. Everything from index to code uses
 * integers only.
 */

export const ONE = 2 ** 30; // probabilities are integers, in units of 1 / ONE
const MAX_CODES = 2 ** 24; // also the largest argument of below()
const CAP = 2n ** 54n - 1n;
const NAME = /^[a-z0-9_-]{1,32}$/;
const { floor, max, min } = Math;
const { isArray: isList } = Array;
const big = BigInt;
const Bytes = Uint8Array;
const NAMED = 'must be 1 to 32 of a-z, 0-9, _ and -';
const TOO_MANY = 'more than 16777216 codes';
export const SMALL = 'epsilon is too small for so many codes';
const RULES = { unlimited: 0, sum: 1, squares: 2, count: 0 }; // a report's cost is epsilon to this power
const MAX_UNSENT = 16; // reports

/* Error names. ExperimentRefused: malformed, unsigned or not allowed by the policy. SettingsError: policy, id or keys
 * are invalid. LedgerError: the ledger is locked or exists already, or the storage failed. EntropyError: the random
 * source is missing or stuck. After the last two, nothing was spent. */
const REFUSED = 'ExperimentRefused';
const LEDGER = 'LedgerError';
const SETTINGS = 'SettingsError';

/**
 * Throw an error unless a condition holds.
 *
 * @param {*} good The condition.
 * @param {string} text The error's message.
 * @param {string} [name='ExperimentRefused'] The error's name.
 * @throws {Error} An error with this name, if `good` is falsy.
 */
export function check(good, text, name = REFUSED) {
  if (!good) throw Object.assign(new Error(text), { name });
}

// --- Bytes -----------------------------------------------------------------------------------------

const SHA = 'SHA-256';
const subtle = () => crypto.subtle;
const utf8 = (text) => new TextEncoder().encode(text);
const hex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
const unhex = (text) => Bytes.from(text.match(/../g) ?? [], (two) => parseInt(two, 16));
const uint = (bytes) => Number(`0x${hex(bytes)}`);
const sha256 = async (bytes) => new Bytes(await subtle().digest(SHA, bytes));

const joined = (...parts) => Bytes.from(parts.flatMap((part) => [...part]));

const bigEndian = (value, size) => unhex(value.toString(16).padStart(2 * size, '0'));

// --- Arithmetic ------------------------------------------------------------------------------------

/** Return BigInts low <= e^-(epsilon / 10^6) * 2^bits <= high. */
function expBounds(epsilon, bits) {
  let halvings = 0n;
  while (epsilon << 4n >= 1_000_000n << halvings) halvings++; // until epsilon / 2^halvings is below 1/16
  const x = (epsilon << bits) / (1_000_000n << halvings);
  let term = 1n << bits;
  let total = term;
  let i = 0n;
  while (term) {
    i++;
    term = ((term * x) >> bits) / i;
    total += i & 1n ? -term : term;
  }
  // Each term is too small by less than 2 units, as are x and the sum of the omitted terms. Each term is less than 1/16 of
  // the previous one, so there are at most bits / 4 + 1 of them.
  let low = total - bits;
  let high = total + bits;
  for (; halvings; halvings--) {
    low = (low * low) >> bits;
    high = ((high * high) >> bits) + 1n;
  }
  return [low, high];
}

/**
 * Return exactly floor(2^30 p) for p = inside e^eps / (inside e^eps + others).
 *
 * 2^30 p is irrational, so sufficiently close bounds have the same floor.
 *
 * @param {number} epsilon Epsilon in micro-nats, 1000 to 16,000,000.
 * @param {number} others Number of other codes, 1 to 2^24.
 * @param {number} [inside=1] Number of codes that share the truth's probability.
 * @returns {number} The threshold, below 2^30.
 */
export function truthThreshold(epsilon, others, inside = 1) {
  for (let bits = 96n; ; bits += 64n) {
    const one = big(inside) << bits;
    const [low, high] = expBounds(big(epsilon), bits).map((x) => (big(ONE) * one) / (one + big(others) * x));
    if (low === high) return Number(low);
  }
}

export function isPrime(n) {
  let i = 2;
  while (i * i <= n && n % i) i++;
  return n > 1 && i * i > n;
}

// --- Randomness ------------------------------------------------------------------------------------

/* crypto.getRandomValues is a cryptographic generator in browsers and Node, which the system seeds before any script
 * runs. So unlike on a board with a raw source, there is no need to condition or store entropy. isRandom() detects a
 * stub that repeats itself. */
const random = (n) => crypto.getRandomValues(new Bytes(n));

function isRandom() {
  try {
    return String(random(32)) !== String(random(32));
  } catch {} // the source is missing
}

const bits = () => uint(random(4)) & (ONE - 1);

const RNG = {
  /** Return true with probability threshold / ONE, exactly. */
  bernoulli: (threshold) => bits() < threshold,

  /** Return a uniform integer from 0 to n - 1, for n from 1 to 2^24, by rejection, never with a remainder. */
  below(n) {
    const mask = 2 ** (32 - Math.clz32(n - 1)) - 1;
    let x;
    do x = bits() & mask;
    while (x >= n);
    return x;
  },
};

// --- Experiments: value -> index -> code -----------------------------------------------------------

/* Backslashes, control characters, line separators, bidirectional controls, byte-order marks, and what TextDecoder writes
 * in place of bytes that are not UTF-8. */
const NOT_PLAIN = /[\\\p{Cc}\p{Bidi_Control}\u2028\u2029\ufeff\ufffd]/u;

/**
 * Parse an experiment's JSON. JSON.parse is strict enough but rounds numbers above 2^53, so numbers of 16 digits are
 * first turned into strings that start with a delete character, which no other string contains.
 *
 * @param {Uint8Array} payload The JSON.
 * @returns {?Object} The value, or undefined if it is not JSON. An integer is a number or, from 16 digits on, a
 *     BigInt; any other number is null, because no field may have one.
 * @throws {Error} ExperimentRefused if it is too long or contains characters that no experiment may contain.
 */
export function readJson(payload) {
  check(payload.length <= 1024, 'larger than 1024 bytes');
  const text = new TextDecoder('utf8', { ignoreBOM: true }).decode(payload);
  check(!NOT_PLAIN.test(text), 'not UTF-8, or has a backslash or a control character');
  const mark = (token, string) => string ?? (/[.e]/i.test(token) ? null : token.length < 16 ? token : `"\x7f${token}"`);
  const revive = (_key, value) => (value?.[0] === '\x7f' ? big(value.slice(1)) : value);
  try {
    JSON.parse(text);
    return JSON.parse(text.replace(/("[^"]*")|-?\d[-+.\deE]*/g, mark), revive);
  } catch {} // not JSON
}

const isObject = (x) => x && typeof x === 'object' && !isList(x);

function take(fields, name, fallback) {
  const value = Object.hasOwn(fields, name) ? fields[name] : fallback;
  delete fields[name];
  check(value != null, `${name} is missing`);
  return value;
}

const isString = (x) => typeof x === 'string';
const isText = (x, maxBytes) => isString(x) && x && utf8(x).length <= maxBytes;
const isSet = (list) => new Set(list).size === list.length;
const isNumber = (x) => typeof x === 'number' || typeof x === 'bigint';
const isInt = (x, low, high) => isNumber(x) && x >= low && x <= high; // for values from readJson()

/**
 * Remove an integer from an experiment's fields and return it.
 *
 * @param {Object} fields The fields that have not been read yet.
 * @param {string} name The field's name.
 * @param {number|bigint} low Lowest allowed value.
 * @param {number|bigint} high Highest allowed value.
 * @param {number} [fallback] Value to use if the field is missing.
 * @returns {number|bigint} The field's value.
 * @throws {Error} ExperimentRefused if the field is missing or out of range.
 */
export function takeInt(fields, name, low, high, fallback) {
  const value = take(fields, name, fallback);
  check(isInt(value, low, high), `${name} must be an integer from ${low} to ${high}`);
  return value;
}

function checkInts(name, value, count, low, high) {
  const good = isList(value) && value.length === count && value.every((x) => isInt(x, low, high));
  check(good, `${name} must be a list of ${count} integers from ${low} to ${high}`);
  return value;
}

/** Take a field that must be a list of different texts with at most `size` bytes. */
function takeTexts(fields, name, size) {
  const texts = take(fields, name);
  const good = isList(texts) && texts.length && texts.every((x) => isText(x, size));
  check(good && isSet(texts), `${name} must differ and have 1 to ${size} bytes`);
  return texts;
}

/** Take the open group's name and values, and `every` for each of them or for all. */
function takeGroup(exp, fields) {
  let [group, groups] = ['', []];
  if (fields.group !== undefined) {
    group = takeName(fields, 'group');
    groups = takeTexts(fields, 'groups', 32);
    check(groups.length < 16 && !groups.includes('other'), 'groups must have at most 15 values, and not other');
  }
  const count = groups.length + 1; // the last index is "other": any value that is not listed
  const everyOf =
    group && isList(fields.every)
      ? checkInts('every', take(fields, 'every'), count, 1, MAX_CODES)
      : Array(count).fill(takeInt(fields, 'every', 1, MAX_CODES, 1));
  Object.assign(exp, { group, groups, everyOf, every: everyOf.at(-1) });
}

const takeCells = (fields, count) => checkInts('cells', take(fields, 'cells'), count, 2, MAX_CODES);

/**
 * Remove the weights from an experiment's fields and return them.
 *
 * @param {Object} fields The fields that have not been read yet.
 * @param {number} count Number of weights.
 * @param {number} lowest Lowest allowed weight; the highest is 65535.
 * @returns {number[]} The weights; all 1 if the field is missing.
 * @throws {Error} ExperimentRefused if the field is not such a list.
 */
export const takeWeights = (fields, count, lowest) =>
  checkInts('weights', take(fields, 'weights', Array(count).fill(1)), count, lowest, 65535);

function takeChoice(fields, name, choices) {
  const value = take(fields, name);
  check(isString(value) && Object.hasOwn(choices, value), `unsupported ${name} ${isString(value) ? value : '?'}`);
  return value;
}

function takeName(fields, field = 'name') {
  const name = take(fields, field);
  check(isString(name) && NAME.test(name), `${field} ${NAMED}`);
  return name;
}

function takeNoMore(fields, where = '') {
  for (const name in fields) check(false, `unknown field ${name}${where}`);
}

/**
 * Types of parts. Each returns its domain and at(value), which returns an index, or undefined for a wrong type. scale.js
 * extends number.
 */
export const SIMPLE = {
  bool: () => ({
    domain: 2,
    at: (x) => (typeof x === 'boolean' || typeof x === 'bigint' || Number.isInteger(x) ? +!!x : undefined),
  }),
  choice(fields) {
    const labels = takeTexts(fields, 'labels', 64);
    const domain = labels.length + 1;
    // An unlisted label, for which indexOf() gives -1, counts as "other", the last label.
    return { domain, at: (x) => (isString(x) ? (labels.indexOf(x) + domain) % domain : undefined) };
  },
  number(fields) {
    const [low, high] = ['low', 'high'].map((name) => takeInt(fields, name, -(2 ** 40), 2 ** 40));
    check(low < high, 'low must be less than high');
    const domain = takeInt(fields, 'bins', 2, MAX_CODES);
    const at = (x) => {
      if (!isNumber(x)) return undefined;
      const exact = Number(x) * 1000;
      if (exact < low) return 0;
      const milli = exact < high ? floor(exact + 0.5) : high;
      return milli < high ? Number((big(milli - low) * big(domain)) / big(high - low)) : domain - 1;
    };
    return { domain, at };
  },
};

/** Read the type of a reading or part. `none` is the index of a missing reading: the last index, or null. */
function takeReading(fields, types) {
  const name = takeName(fields);
  const type = takeChoice(fields, 'type', types);
  const reading = { name, type, none: null, ...types[type](fields) };
  if (SIMPLE[type] && 'missing' in fields) {
    reading.none = reading.domain;
    reading.domain += takeInt(fields, 'missing', 1, 1);
  }
  return reading;
}

/** Return a reading's index or a promise of it; undefined for a wrong type. NaN (which is not equal to itself) is missing. */
const indexOf = (reading, x) => (x == null || x !== x ? reading.none : reading.at(x));

function takeText(fields) {
  const salt = take(fields, 'salt');
  check(isText(salt, 32), 'salt must be 1 to 32 bytes');
  const slots = takeInt(fields, 'slots', 2, 2 ** 20);
  check(!(slots & (slots - 1)), 'slots must be a power of 2');
  const none = [];
  const prefixes = take(fields, 'prefixes', none);
  if (prefixes !== none) checkInts('prefixes', prefixes, min(prefixes.length || 1, 16), 1, 16);
  check(
    prefixes.every((x, i) => !i || prefixes[i - 1] <= x),
    'prefixes must not decrease',
  );
  const domain = slots ** max(prefixes.length, 1); // a power of 2 up to 2^320, so exact as a number
  const slot = async (level, text) => {
    const digest = await sha256(joined(utf8(salt), [level], text));
    return uint(digest.subarray(5, 8)) & (slots - 1); // slots divides 2^24, so the last 3 bytes suffice
  };
  const at = async (x) => {
    if (!isString(x) && !(x instanceof Bytes)) return undefined;
    const text = (isString(x) ? utf8(x) : x).subarray(0, 255);
    if (!prefixes.length) return slot(0, text);
    let index = 0n;
    for (let i = prefixes.length; i; i--) {
      const start = new Bytes(prefixes[i - 1]);
      start.set(text.subarray(0, start.length));
      index = index * big(slots) + big(await slot(i, start));
    }
    return domain > MAX_CODES ? index : Number(index);
  };
  return { slots, prefixes, at, domain };
}

function takePair(fields) {
  const of = take(fields, 'of');
  const good = isList(of) && of.length >= 2 && of.length <= 3 && of.every(isObject);
  check(good, 'of must be 2 or 3 objects');
  const parts = of.map((partFields) => {
    const part = takeReading(partFields, SIMPLE);
    takeNoMore(partFields, ' in of');
    return part;
  });
  const domain = parts.reduce((all, part) => all * part.domain, 1);
  check(isSet(parts.map((part) => part.name)) && domain <= MAX_CODES, 'of: duplicate name or too many values');
  const at = (value) => {
    if (!isList(value) || value.length !== parts.length) return undefined;
    const indices = parts.map((part, i) => indexOf(part, value[i]));
    if (indices.includes(undefined)) return undefined;
    return indices.includes(null) ? null : parts.reduce((index, part, i) => index * part.domain + indices[i], 0);
  };
  return { parts, domain, at, none: parts.every((part) => part.none) ? domain - 1 : null };
}

/* Randomized responses over a domain: [number of codes, (index, rng) -> code, number of codes that stand for an index,
 * threshold]. The codes start at offset. */

/** Return a g-ary response (hashed if g is not the domain): all of rr, grr and olh, one level of hh, or one view. */
function level(epsilon, domain, g, offset, nodeOf) {
  check(g === domain || (g < domain && g <= 65536 && isPrime(g)), `cells: ${g} must be ${domain} or a prime below it`);
  let t = 0;
  let size = 1;
  for (; g !== domain && size < domain; t++) size *= g;
  const seeds = t ? size - 1 : 1;
  const threshold = truthThreshold(epsilon, g - 1);
  // At or below 1/g the truth is not more likely than any single lie, so e^eps would bound the wrong ratio.
  check(threshold * g > ONE, SMALL);
  const respond = (index, rng) => {
    let node = nodeOf(index);
    let code = offset;
    let cell = node;
    if (t) {
      let seed = 1 + rng.below(seeds);
      code += (seed - 1) * g;
      cell = 0;
      for (let i = 0; i < t; i++) {
        cell += (node % g) * (seed % g);
        node = floor(node / g);
        seed = floor(seed / g);
      }
    }
    // Both are always drawn, and one expression covers both cases, so timing does not reveal a lie.
    const lie = !rng.bernoulli(threshold);
    const other = 1 + rng.below(g - 1); // one of the g - 1 *other* cells
    return code + ((cell + lie * other) % g);
  };
  return [seeds * g, respond, seeds, threshold];
}

/**
 * Combine several responses. Each report uses one, drawn by weight and independently of the reading.
 *
 * @param {Object} exp The experiment, whose `codes` and `responses` are set.
 * @param {number[]} weights Each response's weight; not all may be 0.
 * @param {function(number, number): [number, function]} make Given i and an offset, return response i with codes
 *     that start at the offset.
 * @returns {function((number|bigint|null), Object): number} (index, rng) -> code.
 */
export function combine(exp, weights, make) {
  exp.codes = 0;
  exp.responses = weights.map((weight, i) => {
    const [codes, ...response] = make(i, exp.codes);
    exp.codes += codes;
    return [weight, ...response];
  });
  const sum = weights.reduce((a, b) => a + b);
  return (index, rng) => {
    let draw = exp.responses[1] ? rng.below(sum) : 0;
    return exp.responses.find(([weight]) => draw < weight || ((draw -= weight), false))[1](index, rng);
  };
}

function plain(exp, fields, mechanism) {
  const { epsilon, domain } = exp;
  check(mechanism !== 'rr' || domain === 2, 'rr requires two values');
  let cells = [domain];
  let weights = [1];
  let fanout = 1;
  if (mechanism === 'olh') cells = [takeInt(fields, 'g', 2, domain - 1)];
  if (mechanism === 'hh') {
    fanout = takeInt(fields, 'fanout', 2, domain);
    let height = 0;
    let nodes = 1;
    for (; nodes < domain; height++) nodes *= fanout;
    cells = takeCells(fields, height);
    weights = takeWeights(fields, height, 0);
    check(weights.at(-1), 'the last weight must not be 0');
  }
  return combine(exp, weights, (i, offset) => {
    const width = fanout ** (cells.length - 1 - i);
    return level(epsilon, Math.ceil(domain / width), cells[i], offset, (index) => floor(index / width));
  });
}

/**
 * Mechanisms by name. pgr.js, prefix.js and sw.js add one each.
 *
 * Each function reads its fields, sets exp.codes and returns (index, rng) -> code. For privacy, utility and citations see
 * device/ldp_client.py, ldp_sw.py, ldp_pgr.py, ldp_prefix.py and ldp_pairs.py.
 *
 * @type {Object<string, function(Object, Object, string): function>}
 */
export const MECHANISMS = {
  rr: plain,
  grr: plain,
  olh: plain,
  hh: plain,
  views(exp, fields) {
    const { epsilon, domain, parts } = exp;
    const views = take(fields, 'views');
    check(parts && isList(views), "views must be lists of a pair's parts");
    const rises = (view) => isList(view) && view.length && view.every((x, i) => parts[x] && isInt(x, i ? view[i - 1] + 1 : 0, 2));
    check(views.every(rises) && isSet(views.map(String)), 'views must differ and ascend');
    const cells = takeCells(fields, views.length);
    const weights = takeWeights(fields, views.length, 0);
    check(
      weights.some((x) => x),
      'weights must not all be 0',
    );
    return combine(exp, weights, (i, offset) => {
      let nodes = 1;
      let stride = domain;
      const steps = parts.map((part, at) => {
        stride /= part.domain;
        const size = views[i].includes(at) ? part.domain : 1; // a part outside the view adds 0
        nodes *= size;
        return [stride, size];
      });
      const nodeOf = (index) => steps.reduce((node, [stride, size]) => node * size + (floor(index / stride) % size), 0);
      return level(epsilon, nodes, cells[i], offset, nodeOf);
    });
  },
};

/**
 * Parse an experiment: its question, its mechanism and its budget.
 *
 * @param {Uint8Array} payload A JSON object of at most 1 KiB.
 * @returns {Promise<Experiment>} The experiment. bucket(value) resolves to a reading's index, or to null for a missing
 *     reading without an index, and rejects with TypeError for a wrong type; randomize(index, rng) returns a code.
 * @throws {Error} ExperimentRefused if a field is missing, unknown or out of range.
 */
export async function parseExperiment(payload) {
  const fields = readJson(payload);
  check(isObject(fields), 'not a JSON object');
  takeInt(fields, 'v', 1, 1);
  const exp = { ...takeReading(fields, { ...SIMPLE, text: takeText, pair: takePair }), sha256: await sha256(payload) };
  exp.epsilon = takeInt(fields, 'epsilon', 1000, 16e6);
  const mechanism = takeChoice(fields, 'mechanism', MECHANISMS);
  check(exp.domain <= MAX_CODES || mechanism === 'prefix', TOO_MANY);
  const randomize = MECHANISMS[mechanism](exp, fields, mechanism);
  check(exp.codes <= MAX_CODES, TOO_MANY);
  exp.codeBytes = 1 + (exp.codes > 256) + (exp.codes > 65536);
  takeGroup(exp, fields);
  exp.window = takeChoice(fields, 'window', { hour: 1, day: 1, all: 1 });
  const budget = take(fields, 'budget');
  check(isObject(budget), 'budget must be an object');
  exp.rule = takeChoice(budget, 'rule', RULES);
  exp.cap = exp.rule === 'unlimited' ? 0n : big(takeInt(budget, 'cap', 1, CAP));
  // The cost of one report against the cap: micro-nats, micro-nats squared, or 1.
  exp.cost = big(exp.epsilon) ** big(RULES[exp.rule]);
  takeNoMore(budget, ' in budget');
  takeNoMore(fields);
  exp.bucket = async (value) => {
    const index = await indexOf(exp, value);
    if (index === undefined) throw new TypeError(`${exp.name} must be a ${exp.type}, or null`);
    return index;
  };
  exp.randomize = (index, rng) => randomize(index === null && exp.domain <= MAX_CODES ? rng.below(exp.domain) : index, rng);
  return exp;
}

// --- The ledger ------------------------------------------------------------------------------------

/* A storage keeps numbered records, which are strings. read() resolves to [[number, record], ...], with at least the
 * last two. write(number, record) resolves to true once the record will survive power loss, or to false, without
 * writing, if a record with this or a higher number exists. It keeps the previous record and may delete older ones.
 * Both may reject. database.js and folder.js implement storages.
 *
 * The result false keeps two tabs or processes from spending the same budget twice: if both write the same number, one
 * of them fails and reads again. So there are no locks that a killed process could leave behind.
 *
 * A record is the hexadecimal SHA-256 of its JSON, followed by the JSON. The last two records must be intact and have
 * consecutive numbers, because a lost or damaged record could be the newest, and continuing from the other would refund
 * a debit. entries: [last report's number, rule, cap, spent] by name; serials: by name. Each name is preceded by a dot,
 * so that __proto__ is an ordinary name. Values that can exceed 2^53 are strings. */

const seal = async (json) => hex(await sha256(utf8(json))) + json;

async function decode([number, record]) {
  const state = record === (await seal(record.slice(64))) ? JSON.parse(record.slice(64)) : {};
  return state.format === 1 && state.number === number ? state : null;
}

const failure = (e) => `storage failed: ${e}`;

/** Return the current {state, record}, or {locked: reason, fresh: whether provision() may start}; last: highest number. */
async function load(storage) {
  let records;
  try {
    records = (await storage.read()).sort(([a], [b]) => a - b).slice(-2);
  } catch (e) {
    return { locked: failure(e) };
  }
  const [last, record] = records.at(-1) ?? [0];
  const [before, state] = await Promise.all(records.map(decode));
  const fresh = !state && (!last || (last === 1 && before)); // empty, or left by an interrupted provision()
  if (fresh) return { last, fresh, locked: 'no ledger; provision this client' };
  const isIntact = before && state && before.number + 1 === last;
  return isIntact ? { last, state, record } : { last, locked: 'the ledger is damaged; provision again' };
}

/** Write a state as the next record and return the record, or null if another client wrote it first. */
async function commit(storage, state) {
  const { number } = state;
  const record = await seal(JSON.stringify(state));
  let stored;
  try {
    if (!(await storage.write(number, record))) return null;
    stored = await storage.read();
  } catch (e) {
    check(false, failure(e), LEDGER);
  }
  check(
    stored.some(([n, text]) => n > number || (n === number && text === record)),
    'storage failed: read-back differs',
    LEDGER,
  );
  return record;
}

// --- The client ------------------------------------------------------------------------------------

const HALF = 0x7fffffff800000007fffffffffffffffde737d56d38bcf4279dce5617e3192a8n; // half the order of P-256

/**
 * Return whether a P-256 signature of a message is valid.
 *
 * @param {Uint8Array} publicKey The key, x and y.
 * @param {Uint8Array} message The message.
 * @param {Uint8Array} signature r and s.
 * @returns {Promise<boolean>} Whether it is valid.
 */
export async function isSigned(publicKey, message, signature) {
  if (big(`0x${hex(signature.subarray(32))}`) > HALF) return false; // or anybody could derive a second valid signature
  const P256 = { name: 'ECDSA', namedCurve: 'P-256', hash: SHA };
  return subtle()
    .importKey('raw', joined([4], publicKey), P256, false, ['verify'])
    .then((key) => subtle().verify(P256, key, signature, message))
    .catch(() => false); // the key is not a point on the curve
}

const checkDevice = (x) => check(isText(x, 32) && /^[a-z0-9-]+$/.test(x), 'deviceId must be 1 to 32 of a-z, 0-9 and -', SETTINGS);

function checkSettings({ policy = {}, deviceId, key, announceKey, fleet }) {
  const ask = (good, text) => check(good, text, SETTINGS);
  const counts = ['sum', 'squares', 'epsilon'].every((name) => Number.isSafeInteger(policy[name]));
  const { groups = [], ...needed } = policy;
  const lists = isList(groups) && ['rules', 'experiments'].every((name) => isList(policy[name]));
  ask(
    counts && lists && Object.keys(needed).length === 5,
    'policy: integers sum, squares, epsilon; lists rules, experiments, [groups]; no more',
  );
  if (deviceId !== undefined) checkDevice(deviceId);
  const bytes = (x, size) => x == null || (x instanceof Bytes && x.length === size);
  ask(bytes(key, 32) && bytes(announceKey, 64), 'key has 32 bytes, announceKey 64');
  ask(fleet == null ? !announceKey : NAME.test(fleet), `fleet ${NAMED}`);
}

/** A device: its experiments, its budget and its unsent reports. Create one with Client.open(). */
export class Client {
  #settings;
  #experiments = new Map();
  #refusals = new Map();
  #serials = new Map();
  #muted = null; // the last opt-out that is not yet stored; each opt-out is a distinct object
  #consent = null;
  #error = null;
  #seen = [0]; // number and text of the last record that was current
  #queue = Promise.resolve();
  /** Names of the experiments that the application withdrew itself, and has not enrolled in again. */
  ended = new Set();
  /**
   * An open group's name -> this client's value, such as { firmware: '2.4.0' }. Values are sent unprotected, so they must
   * not depend on a reading.
   */
  groups = {};
  /** The random number generator. Only tests and simulations replace it. */
  rng = RNG;

  /**
   * Create the empty ledger. Call it once.
   *
   * @param {Storage} storage Where the ledger is stored.
   * @param {Object} [options]
   * @param {boolean} [options.replace=false] Whether to overwrite an existing ledger, intact or damaged. This
   *     restarts the privacy bound, so it uses a new device id.
   * @param {?true} [options.consent=null] true if the person whose data is measured has already opted in.
   * @param {string} [options.deviceId] 1 to 32 of a-z, 0-9 and -; random by default.
   * @returns {Promise<string>} The device id.
   * @throws {Error} LedgerError if there is a ledger or the storage fails; SettingsError for an invalid device id.
   */
  static async provision(storage, { replace = false, consent = null, deviceId: device = hex(random(8)) } = {}) {
    checkDevice(device);
    const { last, fresh, locked, state: old } = await load(storage);
    check(last !== undefined, locked, LEDGER);
    const exists = 'a ledger exists; use replace: true';
    check(replace || fresh, exists, LEDGER);
    const serials = old?.serials ?? {}; // a new ledger must not bring back an older signed experiment
    // Write two records, so that a ledger that has lost its first report cannot pass for a new one.
    for (const number of [last + 1, last + 2]) {
      const state = { format: 1, number, device, consent, sum: '0', squares: '0', entries: {}, serials, unsent: [] };
      check(await commit(storage, state), exists, LEDGER);
    }
    return device;
  }

  /**
   * Open a client on a storage.
   *
   * A missing or damaged ledger is not an error: the client is then locked, status() gives the reason, and the
   * application can continue.
   *
   * @param {Object} settings
   * @param {Policy} settings.policy This program's limits, whatever a server asks for.
   * @param {Storage} settings.storage Where the ledger is stored.
   * @param {string} [settings.deviceId] 1 to 32 of a-z, 0-9 and -; defaults to the ledger's.
   * @param {?Uint8Array} [settings.key] The device's 32-byte key; none in an open fleet.
   * @param {?Uint8Array} [settings.announceKey] The fleet's 64-byte public key, which verifies experiments.
   * @param {?string} [settings.fleet] The fleet's name; required with `announceKey`.
   * @returns {Promise<Client>} The client.
   * @throws {Error} SettingsError for an invalid setting.
   */
  static async open(settings) {
    checkSettings(settings);
    const client = new Client();
    client.#settings = settings;
    client.fleet = settings.fleet;
    client.deviceId = settings.deviceId;
    await client.#read();
    return client;
  }

  async #load() {
    const { state, record, locked } = await load(this.#settings.storage);
    const [number, text] = this.#seen;
    let why = locked;
    if (state) {
      this.deviceId ??= state.device;
      const same = state.device === this.deviceId && (state.number > number || record === text || !number);
      if (!same) why = "the ledger is older or another client's";
    }
    this.#consent = why ? null : state.consent;
    check(!why, `locked: ${why}`, LEDGER);
    this.#seen = [state.number, record];
    return state;
  }

  /** Call run() once all previous calls have ended, and return its promise. */
  #turn(run) {
    const turn = this.#queue.then(run);
    this.#queue = turn.catch(() => {});
    return turn;
  }

  /** Return the current state, or the result of otherwise(error) if the ledger is locked. */
  #read = (otherwise = () => null) => this.#turn(() => this.#load()).catch(otherwise);

  /** Commit the changes that make(state) makes, and resolve to its result. If it is undefined, resolve to null instead. */
  #change(make) {
    return this.#turn(async () => {
      for (let tries = 0; tries < 100; tries++) {
        const state = await this.#load();
        const answer = await make(state);
        if (answer === undefined) return null;
        state.number++;
        const record = await commit(this.#settings.storage, state);
        if (record) {
          this.#seen = [state.number, record];
          this.#consent = state.consent;
          return answer;
        }
      }
      return check(false, 'in use by another client', LEDGER);
    });
  }

  // Experiments

  /**
   * Take part in a retained experiment, signed or not. If it is refused, nothing changes, and status() shows the reason.
   *
   * @param {Uint8Array} payload The retained message.
   * @returns {Promise<Experiment>} The experiment.
   * @throws {Error} ExperimentRefused, with the reason as its message.
   */
  async enroll(payload) {
    const { policy, announceKey } = this.#settings;
    const zero = payload.indexOf(0);
    const end = zero < 0 ? payload.length : zero;
    let name = '';
    try {
      const exp = await parseExperiment(payload.subarray(0, end));
      check(policy.experiments.includes(exp.name), `${exp.name} is not in the policy`);
      name = exp.name;
      check(exp.epsilon <= policy.epsilon, `epsilon is above the policy's ${policy.epsilon}`);
      check(policy.rules.includes(exp.rule), `the policy forbids budget rule ${exp.rule}`);
      check(!exp.group || policy.groups?.includes(exp.group), `the policy does not name group ${exp.group}`);
      const [, rule, , spent] = this.#entry(exp, await this.#read());
      check(exp.rule === rule, `its budget rule was pinned as ${rule}`);
      check(rule !== 'count' || exp.epsilon === Number(spent), `its epsilon was pinned as ${spent}`);
      if (announceKey) await this.#checkSignature(name, payload, end);
      this.#refusals.delete(name);
      this.ended.delete(name);
      this.#experiments.set(name, exp);
      return exp;
    } catch (e) {
      if (e.name === REFUSED) this.#refusals.set(name, e.message);
      throw e;
    }
  }

  /** Check the zero byte, the 4-byte serial, and the 64-byte signature (over everything before it) that follow the JSON. */
  async #checkSignature(name, payload, end) {
    const { announceKey, fleet } = this.#settings;
    const wrong = 'its signature is missing or wrong';
    check(announceKey && payload[end] === 0 && payload.length === end + 69, wrong);
    const serial = uint(payload.subarray(end + 1, end + 5));
    const lowest = max((await this.#read())?.serials[`.${name}`] ?? 0, this.#serials.get(name) ?? 0);
    check(serial >= lowest, 'a newer version was published');
    const signed = joined(utf8(`hushmote/v1/${fleet}/experiment/${name}\0`), payload.subarray(0, -64));
    check(await isSigned(announceKey, signed, payload.subarray(-64)), wrong);
    await this.#keepSerial(name, serial);
  }

  async #keepSerial(name, serial) {
    this.#serials.set(name, serial);
    const keep = ({ serials }) => (serial > (serials[`.${name}`] ?? 0) ? (serials[`.${name}`] = serial) : undefined);
    await this.#change(keep).catch(this.#recordError);
  }

  /**
   * Stop taking part in an experiment. Its spent budget remains spent, and unsent reports are kept.
   *
   * @param {string} name Name of the experiment.
   * @param {Uint8Array} [payload] The retained message that withdraws it (empty in an open fleet, otherwise signed);
   *     omit it if the application makes the decision: no Door then enrolls in any version of it until the application
   *     calls enroll() itself, or opens the client again.
   * @returns {Promise<void>}
   * @throws {Error} ExperimentRefused for any other payload.
   */
  async withdraw(name, payload) {
    if (!payload) {
      this.ended.add(name);
      const serial = this.#serials.get(name);
      if (this.#experiments.has(name) && serial !== undefined) await this.#keepSerial(name, serial + 1);
    } else if (payload.length || this.#settings.announceKey) {
      await this.#checkSignature(name, payload, 0);
    }
    this.#experiments.delete(name);
    this.#refusals.delete(name);
  }

  /**
   * Return the experiment with a name.
   *
   * @param {string} name The name.
   * @returns {Experiment|undefined} Undefined if this client does not take part in it.
   */
  experiment(name) {
    return this.#experiments.get(name);
  }

  /** Whether reports have a tag. */
  get keyed() {
    return !!this.#settings.key;
  }

  // Reports

  /**
   * Randomize a reading and debit the budget.
   *
   * If no report is made, the reason never depends on the value: nobody has opted in, someone opts out during the call,
   * the draw for `every` skips this call, the budget is spent, too many reports are unsent, the experiment is absent,
   * the client is locked, or the storage failed. status() gives the reason.
   *
   * @param {string} name Name of the experiment.
   * @param {Reading} value The reading; null for a missing one.
   * @param {?string} [group] The open group's value in the period that the reading describes; defaults to the value in
   *     `groups`. It must not depend on the reading either.
   * @returns {Promise<?Uint8Array>} A report to publish, already debited, or null.
   * @throws {TypeError} If the experiment requires another type; nothing was spent.
   * @throws {Error} EntropyError if the random source is missing or stuck; nothing was spent.
   */
  report(name, value, group) {
    const make = async (state) => {
      const exp = this.#experiments.get(name);
      if (!exp || this.#muted || state.consent !== true) return undefined; // must precede the draw and any use of the value
      check(isRandom(), 'crypto.getRandomValues is missing or stuck', 'EntropyError');
      // An unlisted value, for which indexOf() gives -1, counts as "other", the last value.
      const count = exp.everyOf.length;
      const groupIndex = (exp.groups.indexOf(group ?? this.groups[exp.group]) + count) % count;
      const every = exp.everyOf[groupIndex];
      const silent = every > 1 && this.rng.below(every);
      const index = await exp.bucket(value);
      if (silent || this.#left(exp, state) < 1n || state.unsent.length >= MAX_UNSENT) return undefined;
      const [number, rule, cap, spent] = this.#entry(exp, state);
      const report = await this.#encode(exp, number + 1, groupIndex, exp.randomize(index, this.rng));
      const cost = RULES[rule] ? exp.cost : 0n;
      state.entries[`.${name}`] = [number + 1, rule, `${cap}`, `${big(spent) + cost}`];
      state.sum = `${big(state.sum) + big(exp.epsilon)}`;
      state.squares = `${big(state.squares) + big(exp.epsilon) ** 2n}`;
      state.unsent.push(hex(report));
      this.#error = null;
      return report;
    };
    const unlessMuted = (report) => (this.#muted ? null : report); // someone may have opted out during the call
    return this.#change(make).then(unlessMuted, this.#recordError);
  }

  #recordError = (e) => {
    if (e.name !== LEDGER) throw e;
    this.#error = e.message;
    return null;
  };

  /** Return the experiment's ledger entry, or the one that its first report will write. */
  #entry(exp, state) {
    return state?.entries[`.${exp.name}`] ?? [0, exp.rule, exp.cap, exp.rule === 'count' ? exp.epsilon : 0];
  }

  /** Return the number of further reports with this epsilon that every bound allows. */
  #left(exp, state) {
    const lower = (a, b) => (a < b ? a : b);
    const { sum, squares } = this.#settings.policy;
    const epsilon = big(exp.epsilon);
    const [number, rule, cap, spent] = this.#entry(exp, state);
    // Another tab may have pinned a different rule since this version was checked.
    if (rule !== exp.rule || (rule === 'count' && big(spent) !== epsilon)) return 0n;
    // The lifetime bounds: the sum must be within its bound, or the squares within theirs.
    const bySum = (big(sum) - big(state.sum)) / epsilon;
    const bySquares = (big(squares) - big(state.squares)) / epsilon ** 2n;
    const left = lower(bySum > bySquares ? bySum : bySquares, big(2 ** 32 - 1 - number));
    // The experiment's bound: the smaller of the pinned cap and this version's cap.
    const within = lower(big(cap), exp.cap) - big(rule === 'count' ? number : spent);
    return rule === 'unlimited' ? left : lower(left, within / exp.cost);
  }

  async #encode(exp, number, groupIndex, code) {
    const { key } = this.#settings;
    const group = exp.group ? [groupIndex] : [];
    const report = joined([0x10 + 2 * group.length + !!key], exp.sha256.subarray(0, 4), bigEndian(number, 4), group, bigEndian(code, exp.codeBytes));
    if (!key) return report;
    const HMAC = { name: 'HMAC', hash: SHA };
    const hmacKey = await subtle().importKey('raw', key, HMAC, false, ['sign']);
    const tag = await subtle().sign(HMAC, hmacKey, joined(utf8(`${this.deviceId}\0`), exp.sha256, report));
    return joined(report, new Bytes(tag, 0, 8));
  }

  /**
   * Return the reports that the broker has not acknowledged. Resend the same bytes.
   *
   * @returns {Promise<Uint8Array[]>} The reports, oldest first; none without consent.
   */
  async unsent() {
    const state = await this.#read();
    return state && this.consent ? state.unsent.map(unhex) : [];
  }

  /**
   * Delete a report that the broker has acknowledged.
   *
   * @param {Uint8Array} report The report.
   * @returns {Promise<void>}
   * @throws {Error} LedgerError if the storage fails; the report is then kept.
   */
  async sent(report) {
    await this.#change(({ unsent }) => {
      const at = unsent.indexOf(hex(report));
      return at < 0 ? undefined : unsent.splice(at, 1);
    });
  }

  // Consent and status

  /**
   * Whether the device takes part, as last read from the ledger. Only true allows reports.
   *
   * @returns {?boolean} null if nobody has answered yet.
   */
  get consent() {
    return this.#muted ? false : this.#consent;
  }

  /**
   * Store an opt-in or opt-out from someone at the client. An opt-out deletes all unsent reports.
   *
   * @param {boolean} yes Whether the device takes part.
   * @returns {Promise<void>}
   * @throws {Error} LedgerError if the answer cannot be stored. Even if an opt-out cannot be stored, the client makes
   *     no reports until it is opened again.
   */
  async setConsent(yes) {
    check(typeof yes === 'boolean', 'consent must be true or false', SETTINGS);
    const muted = yes ? this.#muted : (this.#muted = {});
    await this.#change((state) => {
      state.consent = yes;
      if (!yes) state.unsent = [];
      return yes;
    });
    if (this.#muted === muted) this.#muted = null; // the answer is stored, and no later opt-out is pending
  }

  /**
   * Return this client's state.
   *
   * @returns {Promise<Status>} Plain values; sums are integers in strings, in micro-nats and micro-nats squared.
   */
  async status() {
    let locked = null;
    const state = await this.#read((e) => void (locked = e.message));
    const experiments = {};
    for (const name of this.#settings.policy.experiments) {
      const exp = this.#experiments.get(name);
      const reason = this.#refusals.get(name);
      const left = exp ? max(state && Number(this.#left(exp, state)), 0) : null;
      experiments[name] = {
        state: exp ? (left ? 'reporting' : 'spent') : reason ? 'refused' : 'absent',
        reports: state?.entries[`.${name}`]?.[0] ?? 0,
        left,
        reason,
      };
    }
    return {
      locked,
      error: this.#error,
      consent: this.consent,
      pending: (state && this.consent && state.unsent.length) || 0,
      sum: state?.sum ?? '0',
      squares: state?.squares ?? '0',
      experiments,
      refused: this.#refusals.get(''),
    };
  }
}
