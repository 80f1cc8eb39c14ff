// The form that sends many boards' reports: fields, progress, result.
import { populations, readings, send } from './crowd.js';
import { element, number, reports } from './words.js';

const $ = (id) => document.getElementById(id);

/** Fill the list of populations that fit the experiment. */
export function fillPopulations(exp) {
  const known = populations(exp);
  $('population').replaceChildren(...Object.entries(known).map(([key, [words]]) => element('option', { value: key }, words)));
  $('own-field').hidden = true;
}

/** Send the reports that the form describes, with the page's board in its present state. */
export async function sendMany(board) {
  const { exp, view } = board;
  const [, draw] = populations(exp)[$('population').value];
  const many = Number($('many').value);
  let source;
  try {
    let mine = null;
    if (['mine', 'most'].includes($('population').value)) mine = board.input.value();
    const list = draw ? [] : readings(exp, $('own').value);
    let i = 0;
    source = draw ? () => draw(() => mine) : () => list[i++ % list.length];
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    $('crowd-said').textContent = error.message;
    return;
  }
  const stop = new AbortController();
  $('cancel').onclick = () => stop.abort();
  $('cancel').hidden = $('progress').hidden = false;
  $('send').disabled = $('experiment').disabled = true;
  const [begun, bar] = [performance.now(), $('progress')];
  bar.max = many;
  $('crowd-said').textContent = 'Sending …';
  let at = { made: 0, sent: 0, silent: 0 };
  const progress = (now) => {
    at = now;
    bar.value = now.sent + now.silent;
  };
  const words = () => `${number(at.sent)} of ${reports(many)} ${many === 1 ? 'is' : 'are'} ${board.to.broker ? 'acknowledged by the broker' : 'counted'}.`;
  const refresh = setInterval(() => {
    $('crowd-at').textContent = `${words()} ${at.waiting ?? ''}`;
    view.refresh();
  }, 700);
  try {
    const each = (index, hex) => view.add(index, hex);
    await send({ call: board.call, payloadHex: board.payload, many, source, to: board.to, each, progress, signal: stop.signal });
    const silent = at.silent ? ` ${number(at.silent)} ${at.silent === 1 ? 'board' : 'boards'} never spoke.` : '';
    $('crowd-said').textContent = `Done in ${number((performance.now() - begun) / 1000)} s. ${words()}${silent}`;
  } catch (error) {
    if (error.name !== 'AbortError') throw error;
    $('crowd-said').textContent = `Cancelled. ${words()} What was sent stays sent.`;
  } finally {
    clearInterval(refresh);
    $('cancel').hidden = bar.hidden = true;
    $('crowd-at').textContent = '';
    $('send').disabled = $('experiment').disabled = false;
  }
  await view.refresh();
}
