/**
 * @file Hushmote's client for JavaScript: randomize a reading, debit the privacy budget, return a report.
 *
 * Only this file sees a reading, in browsers and in Node. It does what device/ldp_client.py does on a board, as
 * docs/wire-format.md specifies. Read it from top to bottom: arithmetic, randomness, experiments (value -> index
 * -> code), the ledger, the client. Storages for the ledger and the access through `hushmote door` are separate
 * files.
 *
 * Units: epsilon is an integer number of micro-nats (1_000_000 is epsilon = 1), its squares are in micro-nats
 * squared, numbers are in milli-units. Values that can exceed 2^53 are BigInts. From index to code there are no
 * fractions.
 */

const ONE = 2 ** 30; // probabilities are integers out of ONE
const MOST = 2 ** 24; // codes, and the largest argument of below()
const CAP = 2n ** 54n - 1n;
const NAME = /^[a-z0-9_-]{1,32}$/;
const { floor, max, min } = Math;
const { isArray: isList } = Array;
const big = BigInt;
const Bytes = Uint8Array;
const NAMED = 'must be 1 to 32 of a-z, 0-9, _ and -';
const TOO_MANY = 'more than 16777216 codes';
const SMALL = 'epsilon is too small for so many codes';
const RULES = { unlimited: 0, sum: 1, squares: 2, count: 0 }; // the power of epsilon that a report costs
const UNSENT = 16; // reports that wait at most

/* Names of errors. ExperimentRefused: malformed, unsigned or outside the policy. SettingsError: policy, id or keys
 * are invalid. LedgerError: the ledger is locked or exists already, or the storage failed. EntropyError: there is no
 * random source, or it is stuck. After the last two nothing was spent. */
const REFUSED = 'ExperimentRefused';
const LEDGER = 'LedgerError';
const SETTINGS = 'SettingsError';

/**
 * Throw an error unless a condition holds.
 *
 * @param {*} good The condition.
 * @param {string} text Message of the error.
 * @param {string} [name='ExperimentRefused'] Name of the error.
 * @throws {Error} With this name, if `good` is falsy.
 */
export function check(good, text, name = REFUSED) {
  if (!good) throw Object.assign(new Error(text), { name });
}

// --- Bytes -----------------------------------------------------------------------------------------

const SHA = 'SHA-256';
const subtle = () => crypto.subtle;
const ascii = (text) => new TextEncoder().encode(text);
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
  // Each term is short by less than 2 units, and so are x and the terms left out together.
  let low = total - 2n * i - 4n;
  let high = total + 2n * i + 4n;
  for (; halvings; halvings--) {
    low = (low * low) >> bits;
    high = ((high * high) >> bits) + 1n;
  }
  return [low, high];
}

/**
 * Return exactly floor(2^30 p) for p = inside e^eps / (inside e^eps + others).
 *
 * p is irrational, so the bounds meet.
 *
 * @param {number} epsilon Epsilon in micro-nats, 1000 to 16,000,000.
 * @param {number} others Number of other codes, 1 to 2^24.
 * @param {number} [inside=1] Number of codes that share the truth's probability.
 * @returns {number} The threshold, below 2^30.
 */
export function truthThreshold(epsilon, others, inside = 1) {
  for (let bits = 96n; ; bits += 64n) {
    const one = big(inside) << bits;
    const [least, most] = expBounds(big(epsilon), bits).map((x) => (big(ONE) * one) / (one + big(others) * x));
    if (least === most) return Number(least);
  }
}

function isPrime(n) {
  let i = 2;
  while (i * i <= n && n % i) i++;
  return n > 1 && i * i > n;
}

// --- Randomness ------------------------------------------------------------------------------------

/* crypto.getRandomValues is a cryptographic generator in browsers and Node, which the system seeds before any script
 * runs. So nothing has to be condensed or stored, unlike on a board whose source is raw. isRandom() detects a stub
 * that repeats itself. */
const random = (n) => crypto.getRandomValues(new Bytes(n));

function isRandom() {
  try {
    return String(random(32)) !== String(random(32));
  } catch {
    return false;
  }
}

const bits = () => uint(random(4)) & (ONE - 1);

const RNG = {
  /** Return true with probability threshold / ONE, exactly. */
  bernoulli: (threshold) => bits() < threshold,

  /** Return a uniform integer from 0 to n - 1, for n from 1 to 2^24, by rejection and never by remainder. */
  below(n) {
    const mask = 2 ** (32 - Math.clz32(n - 1)) - 1;
    let x;
    do x = bits() & mask;
    while (x >= n);
    return x;
  },
};

// --- Experiments: value -> index -> code -----------------------------------------------------------

/* Read JSON of printable ASCII without a backslash. JSON.parse is strict enough, but rounds above 2^53, so it reads
 * numbers as strings that begin with a non-ASCII letter. An integer becomes a number or a BigInt; another number
 * becomes null, because no field may have one. */
function readJson(text) {
  const revive = (_key, value) => {
    if (value?.[0] !== 'é') return value;
    const digits = value.slice(1);
    if (!/^-?\d+$/.test(digits)) return null;
    return Number.isSafeInteger(+digits) ? +digits : big(digits);
  };
  try {
    JSON.parse(text);
    return JSON.parse(
      text.replace(/("[^"]*")|-?\d[-+.\deE]*/g, (token, string) => string ?? `"é${token}"`),
      revive,
    );
  } catch {
    return null;
  }
}

const isObject = (x) => x !== null && typeof x === 'object' && !isList(x);

function take(fields, name, fallback) {
  const value = Object.hasOwn(fields, name) ? fields[name] : fallback;
  delete fields[name];
  check(value != null, `${name} is missing`);
  return value;
}

const isString = (x) => typeof x === 'string';
const isText = (x, most) => isString(x) && x && x.length <= most;
const isSet = (list) => new Set(list).size === list.length;
const isNumber = (x) => typeof x === 'number' || typeof x === 'bigint';
const isInt = (x, low, high) => isNumber(x) && x >= low && x <= high; // of what readJson() gave

/**
 * Remove an integer from the fields of an experiment and return it.
 *
 * @param {Object} fields The fields that are not yet read.
 * @param {string} name Name of the field.
 * @param {number|bigint} low Lowest value.
 * @param {number|bigint} high Highest value.
 * @param {number} [fallback] Value of a missing field.
 * @returns {number|bigint} The value.
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

const takeCells = (fields, count) => checkInts('cells', take(fields, 'cells'), count, 2, MOST);

/**
 * Remove the weights from the fields of an experiment and return them.
 *
 * @param {Object} fields The fields that are not yet read.
 * @param {number} count Number of weights.
 * @param {number} least Lowest weight; the highest is 65535.
 * @returns {number[]} The weights; all 1 if the field is missing.
 * @throws {Error} ExperimentRefused if the field is not such a list.
 */
export const takeWeights = (fields, count, least) =>
  checkInts('weights', take(fields, 'weights', Array(count).fill(1)), count, least, 65535);

function takeChoice(fields, name, choices) {
  const value = take(fields, name);
  check(isString(value) && Object.hasOwn(choices, value), `no ${name} ${isString(value) ? value : '?'} in this client`);
  return value;
}

function takeName(fields) {
  const name = take(fields, 'name');
  check(isText(name, 32) && NAME.test(name), `name ${NAMED}`);
  return name;
}

function takeNoMore(fields, where = '') {
  for (const name of Object.keys(fields)) check(false, `unknown field ${name}${where}`);
}

/** Types of a part. Each returns its domain and at(value), which gives an index, or undefined for a wrong type. */
const SIMPLE = {
  bool: () => ({
    domain: 2,
    at: (x) => (typeof x === 'boolean' || typeof x === 'bigint' || Number.isInteger(x) ? +!!x : undefined),
  }),
  choice(fields) {
    const labels = take(fields, 'labels');
    const good = isList(labels) && labels.length && labels.every((x) => isText(x, 64));
    check(good && isSet(labels), 'labels must differ, of 1 to 64 characters');
    const domain = labels.length + 1;
    // An unlisted label, for which indexOf() gives -1, counts as "other", the last label.
    return { domain, at: (x) => (isString(x) ? (labels.indexOf(x) + domain) % domain : undefined) };
  },
  number(fields) {
    const [low, high] = ['low', 'high'].map((name) => takeInt(fields, name, -(2 ** 40), 2 ** 40));
    check(low < high, 'low must be less than high');
    const domain = takeInt(fields, 'bins', 2, MOST);
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

/** Return a reading of one of these types; `none` is the index of a missing reading, the last one, or null. */
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

/** Return the index of a reading, or a promise of it; undefined for a wrong type. Only NaN differs from itself. */
const indexOf = (reading, x) => (x == null || x !== x ? reading.none : reading.at(x));

function takeText(fields) {
  const salt = take(fields, 'salt');
  check(isText(salt, 32), 'salt must be 1 to 32 characters');
  const slots = takeInt(fields, 'slots', 2, 2 ** 20);
  check(!(slots & (slots - 1)), 'slots must be a power of 2');
  const none = [];
  const prefixes = take(fields, 'prefixes', none);
  if (prefixes !== none) checkInts('prefixes', prefixes, min(prefixes.length || 1, 16), 1, 16);
  check(
    prefixes.every((x, i) => !i || prefixes[i - 1] <= x),
    'prefixes must not fall',
  );
  const domain = slots ** max(prefixes.length, 1); // a power of 2: exact as a number, up to 2^320
  const slot = async (level, text) => {
    const digest = await sha256(joined(ascii(salt), [level], text));
    return uint(digest.subarray(5, 8)) & (slots - 1); // slots divides 2^24: the last bytes hold the remainder
  };
  const at = async (x) => {
    if (!isString(x) && !(x instanceof Bytes)) return undefined;
    const text = (isString(x) ? ascii(x.slice(0, 256)) : x).subarray(0, 255);
    if (!prefixes.length) return slot(0, text);
    let index = 0n;
    for (let i = prefixes.length; i; i--) {
      const start = new Bytes(prefixes[i - 1]);
      start.set(text.subarray(0, start.length));
      index = index * big(slots) + big(await slot(i, start));
    }
    return domain > MOST ? index : Number(index);
  };
  return { slots, prefixes, at, domain };
}

function takePair(fields) {
  const of = take(fields, 'of');
  const good = isList(of) && of.length >= 2 && of.length <= 3 && of.every(isObject);
  check(good, 'of must be 2 or 3 objects');
  const parts = of.map((own) => {
    const part = takeReading(own, SIMPLE);
    takeNoMore(own, ' in of');
    return part;
  });
  const domain = parts.reduce((all, part) => all * part.domain, 1);
  check(isSet(parts.map((part) => part.name)) && domain <= MOST, 'of: a name twice or too many values');
  const at = (value) => {
    if (!isList(value) || value.length !== parts.length) return undefined;
    const own = parts.map((part, i) => indexOf(part, value[i]));
    if (own.includes(undefined)) return undefined;
    return own.includes(null) ? null : parts.reduce((index, part, i) => index * part.domain + own[i], 0);
  };
  return { parts, domain, at, none: parts.every((part) => part.none) ? domain - 1 : null };
}

const TYPES = { ...SIMPLE, text: takeText, pair: takePair };

/* Randomized responses over a domain: [number of codes, (index, rng) -> code]. The codes begin at offset. */

/** Return a g-ary response, of a hash if g is not the domain: all of rr, grr and olh, one level of hh, one view. */
function level(epsilon, domain, g, offset, nodeOf) {
  check(g === domain || (g < domain && g <= 65536 && isPrime(g)), `cells: ${g} must be ${domain} or a prime below it`);
  let t = 0;
  let size = 1;
  for (; g !== domain && size < domain; t++) size *= g;
  const seeds = t ? size - 1 : 1;
  const threshold = truthThreshold(epsilon, g - 1);
  // At or below 1/g the truth is not likelier than each lie: e^eps would bound the wrong ratio.
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
    // Both are always drawn and one expression takes either, so timing does not tell a lie from the truth.
    const lie = !rng.bernoulli(threshold);
    const other = 1 + rng.below(g - 1); // one of the g - 1 *other* cells
    return code + ((cell + lie * other) % g);
  };
  return [seeds * g, respond];
}

/**
 * Return a response of points mod q: all of pgr, or one prefix.
 *
 * @param {number} epsilon Epsilon in micro-nats.
 * @param {number} domain Number of values.
 * @param {number} q A prime, 2 to 4093.
 * @param {number} offset First code.
 * @returns {[number, function(number, Object): number]} Number of codes, and (index, rng) -> code.
 * @throws {Error} ExperimentRefused if q is not a prime or there are more than 2^24 codes.
 */
export function points(epsilon, domain, q, offset) {
  check(isPrime(q), 'q must be a prime');
  let t = 1;
  let inside = 1;
  for (; inside * q + 1 < domain; t++) inside = inside * q + 1;
  const outside = q ** t++;
  check(offset + inside + outside <= MOST, TOO_MANY);
  const threshold = truthThreshold(epsilon, outside, inside);
  const respond = (node, rng) => {
    // Everything is always drawn: timing does not tell whether the code is inside.
    const out = 1 - rng.bernoulli(threshold);
    let rest = 1 + rng.below(outside - 1); // digits but the one solved for; inside, not all are 0
    rest += out * (rng.below(outside) - rest);
    const digits = [];
    let at = 0;
    let dot = 0;
    for (let i = 0; i < t; i++) {
      digits.push(rest % q);
      // The node's digits, lowest first: its number with digits 1 to q, less 1 each; a 1 on top; zeros.
      dot += digits[i] * (((node + q - 1) % q) * (node > 0) + (node === 0));
      rest = floor(rest / q);
      at += node > 0;
      node = floor((node - 1) / q);
    }
    // The digit where the node has its 1 goes on top, where rest had none; in its place is what makes the
    // product 0 inside and 1 outside.
    const digit = digits[at];
    digits[t - 1] = digit;
    digits[at] = (((digit + out - dot) % q) + q) % q;
    let top = 0;
    for (const d of digits) top += (d - top) * (d > 0);
    let inverse = 1; // by Fermat's little theorem
    for (let power = q - 2; power; power >>= 1) {
      if (power & 1) inverse = (inverse * top) % q;
      top = (top * top) % q;
    }
    let code = 0;
    let seen = 0;
    for (const d of digits.reverse()) {
      code = code * q + (1 + ((d * inverse) % q)) * seen;
      seen |= d > 0;
    }
    return offset + code;
  };
  return [inside + outside, respond];
}

/**
 * Combine responses, of which each report uses one, drawn by weight and independently of the reading.
 *
 * @param {Object} exp The experiment; sets its `codes`.
 * @param {number[]} weights Weight of each response, not all 0.
 * @param {function(number, number): [number, function]} make Return response i with codes from an offset on.
 * @returns {function((number|bigint|null), Object): number} (index, rng) -> code.
 */
export function drawn(exp, weights, make) {
  exp.codes = 0;
  const all = weights.map((weight, i) => {
    const [codes, respond] = make(i, exp.codes);
    exp.codes += codes;
    return [weight, respond];
  });
  const sum = weights.reduce((a, b) => a + b);
  return (index, rng) => {
    let draw = all[1] ? rng.below(sum) : 0;
    return all.find(([weight]) => draw < weight || ((draw -= weight), false))[1](index, rng);
  };
}

function plain(exp, fields, mechanism) {
  const { epsilon, domain } = exp;
  check(mechanism !== 'rr' || domain === 2, 'rr is for two values');
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
    check(weights.at(-1), 'the last of the weights must not be 0');
  }
  return drawn(exp, weights, (i, offset) => {
    const width = fanout ** (cells.length - 1 - i);
    return level(epsilon, Math.ceil(domain / width), cells[i], offset, (index) => floor(index / width));
  });
}

/**
 * Mechanisms by name; prefix.js adds one.
 *
 * Each reads its fields, sets exp.codes and returns (index, rng) -> code. For privacy, utility and sources see
 * device/ldp_client.py, ldp_sw.py, ldp_pgr.py, ldp_prefix.py and ldp_pairs.py.
 *
 * @type {Object<string, function(Object, Object, string): function>}
 */
export const MECHANISMS = {
  rr: plain,
  grr: plain,
  olh: plain,
  hh: plain,
  sw(exp, fields) {
    const { epsilon, domain } = exp;
    check(exp.type === 'number' && !exp.none, 'sw is for a number without missing');
    const reach = takeInt(fields, 'reach', 0, 2 ** 23);
    const inside = 2 * reach + 1;
    const threshold = truthThreshold(epsilon, domain - 1, inside);
    // Otherwise a code inside is not likelier than one outside: e^epsilon would bound the wrong ratio.
    check(big(threshold) * big(domain - 1) > big(ONE - threshold) * big(inside), SMALL);
    exp.codes = domain + 2 * reach;
    return (index, rng) => {
      // All three are always drawn: timing does not tell a code inside from one outside.
      const truthful = rng.bernoulli(threshold);
      const near = index + rng.below(inside);
      const far = rng.below(domain - 1);
      return [far + (far >= index) * inside, near][+truthful];
    };
  },
  pgr(exp, fields) {
    const q = takeInt(fields, 'q', 2, 4096);
    return drawn(exp, [1], () => points(exp.epsilon, exp.domain, q, 0));
  },
  views(exp, fields) {
    const { epsilon, domain, parts } = exp;
    const views = take(fields, 'views');
    check(parts && isList(views), "views must be lists of a pair's parts");
    const rises = (view) => isList(view) && view.length && view.every((x, i) => parts[x] && isInt(x, i ? view[i - 1] + 1 : 0, 2));
    check(views.every(rises) && isSet(views.map(String)), 'views must differ and rise');
    const cells = takeCells(fields, views.length);
    const weights = takeWeights(fields, views.length, 0);
    check(
      weights.some((x) => x),
      'weights must not all be 0',
    );
    return drawn(exp, weights, (i, offset) => {
      let nodes = 1;
      let stride = domain;
      const steps = parts.map((part, at) => {
        stride /= part.domain;
        const size = views[i].includes(at) ? part.domain : 1; // a part that the view leaves out adds 0
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
 * @returns {Promise<Experiment>} The experiment. bucket(value) resolves to the index of a reading, or to null for a
 *     missing reading without an index, and rejects with TypeError for another type; randomize(index, rng) returns
 *     its code.
 * @throws {Error} ExperimentRefused if a field is missing, unknown or out of range.
 */
export async function parseExperiment(payload) {
  check(payload.length <= 1024, 'larger than 1024 bytes');
  check(
    payload.every((c) => c >= 32 && c < 127 && c !== 92),
    'not printable ASCII, or a backslash',
  );
  const fields = readJson(new TextDecoder().decode(payload));
  check(isObject(fields), 'not a JSON object');
  takeInt(fields, 'v', 1, 1);
  const exp = { ...takeReading(fields, TYPES), sha256: await sha256(payload) };
  exp.epsilon = takeInt(fields, 'epsilon', 1000, 16e6);
  const mechanism = takeChoice(fields, 'mechanism', MECHANISMS);
  check(exp.domain <= MOST || mechanism === 'prefix', TOO_MANY);
  const randomize = MECHANISMS[mechanism](exp, fields, mechanism);
  check(exp.codes <= MOST, TOO_MANY);
  exp.codeBytes = 1 + (exp.codes > 256) + (exp.codes > 65536);
  exp.every = takeInt(fields, 'every', 1, MOST, 1);
  exp.window = takeChoice(fields, 'window', { hour: 1, day: 1, all: 1 });
  const budget = take(fields, 'budget');
  check(isObject(budget), 'budget must be an object');
  exp.rule = takeChoice(budget, 'rule', RULES);
  exp.cap = exp.rule === 'unlimited' ? 0n : big(takeInt(budget, 'cap', 1, CAP));
  // The cost of one report to the cap: micro-nats, micro-nats squared, or 1.
  exp.cost = big(exp.epsilon) ** big(RULES[exp.rule]);
  takeNoMore(budget, ' in budget');
  takeNoMore(fields);
  exp.bucket = async (value) => {
    const index = await indexOf(exp, value);
    if (index === undefined) throw new TypeError(`${exp.name} takes a ${exp.type}, or null`);
    return index;
  };
  exp.randomize = (index, rng) => randomize(index === null && exp.domain <= MOST ? rng.below(exp.domain) : index, rng);
  return exp;
}

// --- The ledger ------------------------------------------------------------------------------------

/* A storage holds numbered records, which are strings. read() resolves to [[number, record], ...], at least the last
 * two. write(number, record) resolves to true once the record will survive a loss of power, or to false, without
 * writing, if a record with this number or a higher one exists. It keeps the previous record, and may drop older
 * ones. Both may reject. database.js and folder.js are two storages.
 *
 * The "false" keeps two tabs or processes from spending the same budget twice: if both write a number, one of them
 * fails and reads again. So nobody has to hold a lock, and a killed process leaves none behind.
 *
 * A record is the SHA-256 of its JSON in hex, followed by the JSON. The last two must be intact and have consecutive
 * numbers, because a lost or damaged one could be the newest, and continuing from the other would refund a debit.
 * entries: [number of the last report, rule, cap, spent] by name; serials: by name. Each name has a dot before it,
 * so that __proto__ is a name like others. Values that can exceed 2^53 are strings. */

const sealed = async (json) => hex(await sha256(ascii(json))) + json;

async function decode([number, record]) {
  const state = record === (await sealed(record.slice(64))) ? JSON.parse(record.slice(64)) : {};
  return state.format === 1 && state.number === number ? state : null;
}

const failed = (e) => `storage failed: ${e}`;

/** Return {state, record} in force, or {locked: reason, fresh: whether provision() may start}; last: the highest number. */
async function load(storage) {
  let records;
  try {
    records = (await storage.read()).sort(([a], [b]) => a - b).slice(-2);
  } catch (e) {
    return { locked: `locked: ${failed(e)}` };
  }
  const [last, record] = records.at(-1) ?? [0];
  const [before, state] = await Promise.all(records.map(decode));
  const fresh = !state && (!last || (last === 1 && before)); // or all that provision() left that was cut short
  if (fresh) return { last, fresh, locked: 'locked: no ledger; provision this client' };
  const whole = before && state && before.number + 1 === last;
  return whole ? { last, state, record } : { last, locked: 'locked: the ledger is damaged; provision again' };
}

/** Write a state as the next record and return the record, or null if someone else wrote it first. */
async function commit(storage, state) {
  const { number } = state;
  const record = await sealed(JSON.stringify(state));
  let there;
  try {
    if (!(await storage.write(number, record))) return null;
    there = await storage.read();
  } catch (e) {
    check(false, failed(e), LEDGER);
  }
  check(
    there.some(([n, text]) => n > number || (n === number && text === record)),
    'storage failed: it reads back otherwise',
    LEDGER,
  );
  return record;
}

// --- The client ------------------------------------------------------------------------------------

const ORDER = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n; // of P-256

const checkDevice = (x) => check(isText(x, 32) && /^[a-z0-9-]+$/.test(x), 'deviceId must be 1 to 32 of a-z, 0-9 and -', SETTINGS);

function checkSettings({ policy = {}, deviceId, key, announceKey, fleet }) {
  const ask = (good, text) => check(good, text, SETTINGS);
  const counts = ['sum', 'squares', 'epsilon'].every((name) => Number.isSafeInteger(policy[name]));
  const lists = ['rules', 'experiments'].every((name) => isList(policy[name]));
  ask(
    counts && lists && Object.keys(policy).length === 5,
    'policy: integers sum, squares, epsilon; lists rules, experiments; no more',
  );
  if (deviceId !== undefined) checkDevice(deviceId);
  const bytes = (x, size) => x == null || (x instanceof Bytes && x.length === size);
  ask(bytes(key, 32) && bytes(announceKey, 64), 'key has 32 bytes, announceKey 64');
  ask(fleet == null ? !announceKey : NAME.test(fleet), `fleet ${NAMED}`);
}

/** A device: its experiments, its budget and its unsent reports. Client.open() makes one. */
export class Client {
  #settings;
  #experiments = new Map();
  #refusals = new Map();
  #serials = new Map();
  #muted = null; // the last opt-out since the start that is not yet stored; each is a distinct object
  #consent = null;
  #error = null;
  #seen = [0]; // number and text of the last record that was in force
  #queue = Promise.resolve();
  /** Random generator, which only tests and simulations replace. */
  rng = RNG;

  /**
   * Make the empty ledger, once.
   *
   * @param {Storage} storage Where the ledger is stored.
   * @param {Object} [options]
   * @param {boolean} [options.replace=false] Whether to overwrite a ledger, intact or damaged. This restarts the
   *     privacy bound, under a new device id.
   * @param {?true} [options.consent=null] true if the person who is measured has already opted in.
   * @param {string} [options.deviceId] 1 to 32 of a-z, 0-9 and -; random by default.
   * @returns {Promise<string>} The device id.
   * @throws {Error} LedgerError if there is a ledger or the storage fails; SettingsError for an invalid device id.
   */
  static async provision(storage, { replace = false, consent = null, deviceId: device = hex(random(8)) } = {}) {
    checkDevice(device);
    const { last, fresh, locked } = await load(storage);
    check(last !== undefined, locked, LEDGER);
    const there = 'a ledger is there; replace: true starts anew';
    check(replace || fresh, there, LEDGER);
    // Two records, so that a ledger that lost its first report is no fresh one.
    for (const number of [last + 1, last + 2]) {
      const state = { format: 1, number, device, consent, sum: '0', squares: '0', entries: {}, serials: {}, unsent: [] };
      check(await commit(storage, state), there, LEDGER);
    }
    return device;
  }

  /**
   * Open a client on a storage.
   *
   * A missing or damaged ledger is not an error: the client is then locked, status() gives the reason, and the
   * application continues.
   *
   * @param {Object} settings
   * @param {Policy} settings.policy What this program allows, whatever a server asks.
   * @param {Storage} settings.storage Where the ledger is stored.
   * @param {string} [settings.deviceId] 1 to 32 of a-z, 0-9 and -; the ledger's by default.
   * @param {?Uint8Array} [settings.key] The device's 32-byte key; none in an open fleet.
   * @param {?Uint8Array} [settings.announceKey] The fleet's 64-byte public key, which checks signed experiments.
   * @param {?string} [settings.fleet] Name of the fleet; required with `announceKey`.
   * @returns {Promise<Client>} The client.
   * @throws {Error} SettingsError for an invalid setting.
   */
  static async open(settings) {
    checkSettings(settings);
    const client = new Client();
    client.#settings = settings;
    client.fleet = settings.fleet;
    client.deviceId = settings.deviceId;
    await client.#look();
    return client;
  }

  async #load() {
    const { state, record, locked } = await load(this.#settings.storage);
    const [number, text] = this.#seen;
    let why = locked;
    if (state) {
      this.deviceId ??= state.device;
      const same = state.device === this.deviceId && (state.number > number || record === text || !number);
      if (!same) why = 'locked: an older ledger is there, or another one';
    }
    this.#consent = why ? null : state.consent;
    check(!why, why, LEDGER);
    this.#seen = [state.number, record];
    return state;
  }

  /** Call run() once all previous calls have ended, and return its promise. */
  #turn(run) {
    const turn = this.#queue.then(run);
    this.#queue = turn.catch(() => {});
    return turn;
  }

  /** Return the state in force, or the result of otherwise(error) if the ledger is locked. */
  #look = (otherwise = () => null) => this.#turn(() => this.#load()).catch(otherwise);

  /** Commit the changes of make(state) and resolve to its result, or to null without a commit if that is undefined. */
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
      return check(false, 'others write to it', LEDGER);
    });
  }

  // Experiments

  /**
   * Take part in a retained experiment, signed or not. A refused one changes nothing, and status() shows the reason.
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
      check(policy.rules.includes(exp.rule), `the policy has no budget rule ${exp.rule}`);
      const [, rule, , spent] = this.#entry(exp, await this.#look());
      check(exp.rule === rule, `its budget rule was pinned as ${rule}`);
      check(rule !== 'count' || exp.epsilon === Number(spent), `its epsilon was pinned as ${spent}`);
      if (announceKey) await this.#checkSignature(name, payload, end);
      this.#refusals.delete(name);
      this.#experiments.set(name, exp);
      return exp;
    } catch (e) {
      if (e.name === REFUSED) this.#refusals.set(name, e.message);
      throw e;
    }
  }

  /** Check what follows the JSON and a zero byte: 4 bytes of serial number, and 64 of signature over all before. */
  async #checkSignature(name, payload, end) {
    const { announceKey, fleet } = this.#settings;
    const wrong = 'its signature is missing or wrong';
    check(announceKey && payload[end] === 0 && payload.length === end + 69, wrong);
    const serial = uint(payload.subarray(end + 1, end + 5));
    const least = max((await this.#look())?.serials[`.${name}`] ?? 0, this.#serials.get(name) ?? 0);
    check(serial >= least, 'a newer version was published');
    const s = big(`0x${hex(payload.subarray(-32))}`);
    let good = s > 0n && s <= ORDER / 2n; // only the lower half, so that nobody can make a second signature
    const P256 = { name: 'ECDSA', namedCurve: 'P-256', hash: SHA };
    const signed = joined(ascii(`hushmote/v1/${fleet}/experiment/${name}\0`), payload.subarray(0, -64));
    try {
      const key = await subtle().importKey('raw', joined([4], announceKey), P256, false, ['verify']);
      good &&= await subtle().verify(P256, key, payload.subarray(-64), signed);
    } catch {
      good = false; // the key is no point of the curve
    }
    check(good, wrong);
    await this.#keepSerial(name, serial);
  }

  async #keepSerial(name, serial) {
    this.#serials.set(name, serial);
    const keep = ({ serials }) => (serial > (serials[`.${name}`] ?? 0) ? (serials[`.${name}`] = serial) : undefined);
    await this.#change(keep).catch(this.#note);
  }

  /**
   * Stop taking part in an experiment. Its spent budget stays spent, and unsent reports stay.
   *
   * @param {string} name Name of the experiment.
   * @param {Uint8Array} [payload] The retained message that withdraws it, empty in an open fleet, else signed; none
   *     if the application itself decides.
   * @returns {Promise<void>}
   * @throws {Error} ExperimentRefused for any other payload.
   */
  async withdraw(name, payload) {
    if (!payload) {
      const serial = this.#serials.get(name);
      if (this.#experiments.has(name) && serial !== undefined) await this.#keepSerial(name, serial + 1);
    } else if (payload.length || this.#settings.announceKey) {
      await this.#checkSignature(name, payload, 0);
    }
    this.#experiments.delete(name);
    this.#refusals.delete(name);
  }

  // Reports

  /**
   * Randomize a reading and debit the budget.
   *
   * Without a report the reason never depends on the value: nobody has opted in, or someone opts out meanwhile, the
   * draw of `every` skips it, the budget is spent, too many reports wait, the experiment is absent, the client is
   * locked, or the storage failed. status() gives the reason.
   *
   * @param {string} name Name of the experiment.
   * @param {Reading} value The reading; null for a missing one.
   * @returns {Promise<?Uint8Array>} A report to publish, already debited, or null.
   * @throws {TypeError} If the experiment takes another type; nothing was spent.
   * @throws {Error} EntropyError if there is no randomness; nothing was spent.
   */
  report(name, value) {
    const make = async (state) => {
      const exp = this.#experiments.get(name);
      if (!exp || this.#muted || state.consent !== true) return undefined; // before a draw, and before the value is looked at
      check(isRandom(), 'crypto.getRandomValues is missing or stuck', 'EntropyError');
      const silent = exp.every > 1 && this.rng.below(exp.every);
      const index = await exp.bucket(value);
      if (silent || this.#left(exp, state) < 1n || state.unsent.length >= UNSENT) return undefined;
      const [number, rule, cap, spent] = this.#entry(exp, state);
      const report = await this.#encode(exp, number + 1, exp.randomize(index, this.rng));
      const cost = RULES[rule] ? exp.cost : 0n;
      state.entries[`.${name}`] = [number + 1, rule, `${cap}`, `${big(spent) + cost}`];
      state.sum = `${big(state.sum) + big(exp.epsilon)}`;
      state.squares = `${big(state.squares) + big(exp.epsilon) ** 2n}`;
      state.unsent.push(hex(report));
      this.#error = null;
      return report;
    };
    const unlessNo = (report) => (this.#muted ? null : report); // someone may have opted out meanwhile
    return this.#change(make).then(unlessNo, this.#note);
  }

  #note = (e) => {
    if (e.name !== LEDGER) throw e;
    this.#error = e.message;
    return null;
  };

  /** Return the experiment's entry in the ledger, or the one that its first report will write. */
  #entry(exp, state) {
    return state?.entries[`.${exp.name}`] ?? [0, exp.rule, exp.cap, exp.rule === 'count' ? exp.epsilon : 0];
  }

  /** Return how many more reports of this epsilon keep every bound. */
  #left(exp, state) {
    const least = (a, b) => (a < b ? a : b);
    const { sum, squares } = this.#settings.policy;
    const epsilon = big(exp.epsilon);
    const [number, rule, cap, spent] = this.#entry(exp, state);
    // Another tab may have pinned another rule since this version was checked.
    if (rule !== exp.rule || (rule === 'count' && big(spent) !== epsilon)) return 0n;
    // For the device's lifetime: while the sum is within its bound, or the squares are within theirs.
    const bySum = (big(sum) - big(state.sum)) / epsilon;
    const bySquares = (big(squares) - big(state.squares)) / epsilon ** 2n;
    const left = least(bySum > bySquares ? bySum : bySquares, big(2 ** 32 - 1 - number));
    // For this experiment: within the smaller of the pinned cap and the version's.
    const within = least(big(cap), exp.cap) - big(rule === 'count' ? number : spent);
    return rule === 'unlimited' ? left : least(left, within / exp.cost);
  }

  async #encode(exp, number, code) {
    const { key } = this.#settings;
    const report = joined([key ? 0x11 : 0x10], exp.sha256.subarray(0, 4), bigEndian(number, 4), bigEndian(code, exp.codeBytes));
    if (!key) return report;
    const HMAC = { name: 'HMAC', hash: SHA };
    const own = await subtle().importKey('raw', key, HMAC, false, ['sign']);
    const tag = await subtle().sign(HMAC, own, joined(ascii(`${this.deviceId}\0`), exp.sha256, report));
    return joined(report, new Bytes(tag, 0, 8));
  }

  /**
   * Return the reports that no broker has acknowledged. Send the same bytes again.
   *
   * @returns {Promise<Uint8Array[]>} The reports, oldest first; none without consent.
   */
  async unsent() {
    const state = await this.#look();
    return state && this.consent ? state.unsent.map(unhex) : [];
  }

  /**
   * Drop a report that the broker acknowledged.
   *
   * @param {Uint8Array} report The report.
   * @returns {Promise<void>}
   * @throws {Error} LedgerError if the storage fails; the report then stays.
   */
  async sent(report) {
    await this.#change(({ unsent }) => {
      const at = unsent.indexOf(hex(report));
      return at < 0 ? undefined : unsent.splice(at, 1);
    });
  }

  // Consent and status

  /**
   * The answer, as last read; only true allows reports.
   *
   * @returns {?boolean} null if nobody was asked.
   */
  get consent() {
    return this.#muted ? false : this.#consent;
  }

  /**
   * Store the opt-in or opt-out of someone at the client. An opt-out drops all unsent reports.
   *
   * @param {boolean} yes Whether the device takes part.
   * @returns {Promise<void>}
   * @throws {Error} LedgerError if the answer cannot be stored. After a failed opt-out the client is silent all the
   *     same, until it is opened again.
   */
  async setConsent(yes) {
    check(typeof yes === 'boolean', 'consent is true or false', SETTINGS);
    const muted = yes ? this.#muted : (this.#muted = {});
    await this.#change((state) => {
      state.consent = yes;
      if (!yes) state.unsent = [];
      return yes;
    });
    if (this.#muted === muted) this.#muted = null; // it is stored, and no later opt-out is under way
  }

  /**
   * Return the state of this client.
   *
   * @returns {Promise<Status>} Plain values; sums are integers in strings, in micro-nats and micro-nats squared.
   */
  async status() {
    let locked = null;
    const state = await this.#look((e) => void (locked = e.message));
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
