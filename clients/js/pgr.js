/**
 * @file The mechanism pgr, design codes over points. Import 'hushmote/pgr' to add it to the client.
 *
 * For privacy, utility and citation see device/ldp_pgr.py.
 */
import { MECHANISMS, check, combine, isPrime, takeInt, truthThreshold } from './hushmote.js';

const { floor } = Math;

/**
 * Return a response over points mod q: all of pgr, or one prefix.
 *
 * @param {number} epsilon Epsilon in micro-nats.
 * @param {number} domain Number of values.
 * @param {number} q A prime, 2 to 4093.
 * @param {number} offset First code.
 * @returns {Array} Number of codes, (index, rng) -> code, number of codes inside, and their threshold.
 * @throws {Error} ExperimentRefused if q is not a prime or there are more than 2^24 codes.
 */
export function points(epsilon, domain, q, offset) {
  check(isPrime(q), 'q must be a prime');
  let t = 1;
  let inside = 1;
  for (; inside * q + 1 < domain; t++) inside = inside * q + 1;
  const outside = q ** t++;
  check(offset + inside + outside <= 2 ** 24, 'more than 16777216 codes');
  const threshold = truthThreshold(epsilon, outside, inside);
  const respond = (node, rng) => {
    // Everything is always drawn, so timing does not reveal whether the code is inside.
    const out = 1 - rng.bernoulli(threshold);
    let quotient = 1 + rng.below(outside - 1); // all digits except the one to solve for; inside, not all are 0
    quotient += out * (rng.below(outside) - quotient);
    const digits = [];
    let at = 0;
    let dot = 0;
    for (let i = 0; i < t; i++) {
      digits.push(quotient % q);
      // The node's digits, lowest first: the node written with digits 1 to q, minus 1 each; a 1; zeros.
      dot += digits[i] * (((node + q - 1) % q) * (node > 0) + (node === 0));
      quotient = floor(quotient / q);
      at += node > 0;
      node = floor((node - 1) / q);
    }
    // Move the digit at the position of the node's leading 1 to the top, which has no digit yet, and put in its
    // place the digit that makes the product 0 inside and 1 outside.
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
  return [inside + outside, respond, inside, threshold];
}

MECHANISMS.pgr = (exp, fields) => {
  const q = takeInt(fields, 'q', 2, 4096);
  return combine(exp, [1], () => points(exp.epsilon, exp.domain, q, 0));
};
