/**
 * @file The mechanism prefix, which finds unlisted texts. Import 'hushmote/prefix' to add it to the client.
 *
 * It draws one of a text's `prefixes` by weight and reports its slot with pgr. For privacy and citation see
 * device/ldp_prefix.py.
 */
import { MECHANISMS, check, combine, takeInt, takeWeights } from './hushmote.js';
import { points } from './pgr.js';

MECHANISMS.prefix = (exp, fields) => {
  const { epsilon, slots, prefixes } = exp;
  check(prefixes?.length, 'prefix requires a text with prefixes');
  const q = takeInt(fields, 'q', 2, 4096);
  return combine(exp, takeWeights(fields, prefixes.length, 1), (i, offset) => {
    const [codes, respond, ...odds] = points(epsilon, slots, q, offset);
    const place = BigInt(slots) ** BigInt(i);
    const slotOf = (index, missing) => (index === null ? missing : Number((BigInt(index) / place) % BigInt(slots)));
    return [codes, (index, rng) => respond(slotOf(index, rng.below(slots)), rng), ...odds]; // always drawn
  });
};
