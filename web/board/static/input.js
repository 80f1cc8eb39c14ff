// The control for a reading: a slider with a field, or a choice.
import { element, indexName, number } from './words.js';

/** Return a text as a number; throw TypeError if it is not a plain number. One comma or point is the decimal sign. */
export function plainNumber(text) {
  const plain = text.trim().replace('−', '-');
  if (!/^[+-]?(\d+[.,]?\d*|[.,]\d+)$/.test(plain)) {
    throw new TypeError(`“${text.trim()}” is not a reading. Type numbers: digits, and one comma or point, such as 21.5.`);
  }
  return Number(plain.replace(',', '.'));
}

/** Add the controls for an experiment's readings to a box; return access to their values.
 *
 * value() returns the reading, or throws TypeError if nothing is chosen or no number is typed. words() returns it
 * as text. chosen() returns whether there is one. beyond() returns a sentence if a number is outside the bounds,
 * otherwise "".
 * @param changed called at each change
 */
export function readingInput(box, exp, unit, preset, changed) {
  if (exp.type === 'number') return numberInput(box, exp, unit, preset, changed);
  const names = Array.from({ length: exp.domain }, (_, i) => indexName(exp, i));
  // Anything that is not among the labels is "other"; no label is empty.
  const values = exp.type === 'bool' ? [false, true] : [...exp.labels, ''];
  const radios = names.map((_, i) => element('input', { type: 'radio', name: 'reading', value: i }));
  radios.forEach((radio) => radio.addEventListener('change', changed));
  box.replaceChildren(
    element('fieldset', {}, element('legend', {}, 'Reading'), ...names.map((name, i) => element('label', {}, radios[i], ` ${name}`))),
  );
  const at = () => radios.findIndex((radio) => radio.checked);
  const value = () => {
    if (at() < 0) throw new TypeError('Choose a reading above first.');
    return values[at()];
  };
  return { value, words: () => names[at()], chosen: () => at() >= 0, beyond: () => '' };
}

function numberInput(box, exp, unit, preset, changed) {
  const [low, high] = [exp.low / 1000, exp.high / 1000];
  const step = Math.max(10 ** Math.floor(Math.log10((high - low) / 100)), 0.001);
  const start = preset ?? Math.round((low + (high - low) * 0.66) / step) * step;
  const slider = element('input', { type: 'range', id: 'slider', min: low, max: high, step });
  // A text field: a number field drops a comma silently, so that 21,5 would be 215.
  const field = element('input', { type: 'text', inputmode: 'decimal', autocomplete: 'off', id: 'reading' });
  slider.value = field.value = Number(start.toFixed(3));
  slider.addEventListener('input', () => {
    field.value = slider.value;
    changed();
  });
  field.addEventListener('input', () => {
    try {
      slider.value = plainNumber(field.value);
    } catch {
      // the error is shown when it is reported
    }
    changed();
  });
  box.replaceChildren(
    element('p', { class: 'field' }, element('label', { for: 'slider' }, `Slide it${unit && ` (${unit})`}`), slider),
    element('p', { class: 'field' }, element('label', { for: 'reading' }, `or type it${unit && ` (${unit})`}`), field),
  );
  const value = () => plainNumber(field.value);
  const beyond = () => {
    const x = value();
    if (x < low) return `${number(x)} is below ${number(low)}: it counts as the lowest bin.`;
    return x > high ? `${number(x)} is above ${number(high)}: it counts as the highest bin.` : '';
  };
  return { value, words: () => `${number(value())}${unit && ` ${unit}`}`, chosen: () => true, beyond };
}
